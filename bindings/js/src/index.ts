// poolgrad: max pooling and its gradient. See README.md.
export type * from './api/types';
export { avgPool, avgPoolGrad, maxPool, maxPoolGrad, unpool } from './functional';
export { engineFromInstance, engineFromModule, loadEngine, loadEngineSync } from './load';
export { PoolgradError, type ErrorCode } from './raw';
