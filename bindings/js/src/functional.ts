// One call per operation, for those who do not want to hold a plan. Plans are kept and used again behind the scenes.
import type { Engine, Kind, MaxPoolResult, Plan, Problem, Values } from './api/types';
import { loadEngineSync } from './load';
import { show } from './problem';
import { invalid } from './raw';

function planOf(kind: Kind, problem: Problem, engine: Engine = loadEngineSync()): Plan {
  if (typeof engine?.cachedPlan !== 'function') throw invalid(`engine is ${show(engine)}; it must be one that loadEngine gave`);
  const fields = problem !== null && typeof problem === 'object';
  const plan = engine.cachedPlan(fields ? { ...problem, kind: problem.kind ?? kind } : problem);
  if (plan.info.kind !== kind) throw invalid(`the problem is "${plan.info.problem}"; ${kind} pooling was asked for`);
  return plan;
}

/** y, its shape, and the routes that backward, unpool and indices work from. */
export function maxPool(problem: Problem, x: ArrayLike<number>, engine?: Engine): MaxPoolResult {
  const plan = planOf('max', problem, engine);
  const { y, routes } = plan.forward(x);
  return { y, routes: routes as Uint8Array, shape: plan.info.yShape };  // max pooling always has them
}

/** dx, from the routes of maxPool or from x itself. */
export function maxPoolGrad(problem: Problem, dy: ArrayLike<number>,
                            from: { routes: Uint8Array } | { x: ArrayLike<number> }, engine?: Engine): Values {
  const plan = planOf('max', problem, engine);
  // y and shape: all that maxPool gave may be handed on
  const { routes, x, y, shape, ...other } = (from ?? {}) as Partial<MaxPoolResult> & { x?: ArrayLike<number> };
  if ((routes === undefined) === (x === undefined) || Object.keys(other).length > 0) {
    throw invalid(`from is ${show(from)}; it must be { routes } or { x }`);
  }
  return x === undefined ? plan.backward(dy, routes as Uint8Array) : plan.backwardX(dy, x);
}

export function avgPool(problem: Problem, x: ArrayLike<number>, engine?: Engine): { y: Values; shape: number[] } {
  const plan = planOf('avg', problem, engine);
  return { y: plan.forward(x).y, shape: plan.info.yShape };
}

export function avgPoolGrad(problem: Problem, dy: ArrayLike<number>, engine?: Engine): Values {
  return planOf('avg', problem, engine).backward(dy, null);
}

/** y at each output's route, 0 elsewhere. */
export function unpool(problem: Problem, y: ArrayLike<number>, routes: Uint8Array, engine?: Engine): Values {
  return planOf('max', problem, engine).unpool(y, routes);
}
