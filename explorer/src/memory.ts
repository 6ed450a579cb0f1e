// The bytes each library keeps from forward to backward for this layer, as bars of one scale.
//
// Ours is what the library's plan says. PyTorch saves the input and one 64-bit index per output; TensorFlow saves the
// input and the output, and so does TensorFlow.js. With a ReLU in front the pair is meant: PyTorch's and TensorFlow's ReLU saves
// its output, which is the pool's input and counts once; TensorFlow.js's saves its input.
import type { PlanInfo } from '../../bindings/js/src/api/types';
import { byteText } from './numbers';
import { html } from './svg';

const TORCH_INDEX_BYTES = 8;

export interface Kept {
  who: string;
  what: string;
  bytes: number;
}

export function keptForBackward(info: PlanInfo): Kept[] {
  const { xBytes, yBytes, yElements } = info;
  const input = info.relu ? "the ReLU's output" : 'the input';
  const kept: Kept[] = [
    { who: 'poolgrad', what: `routes, ${info.routeBits} bits per output`, bytes: info.routeBytes },
    { who: 'TensorFlow', what: info.relu ? `${input} and the pool's` : 'the input and the output', bytes: xBytes + yBytes },
    { who: 'PyTorch', what: `${input} and ${TORCH_INDEX_BYTES} bytes per output`, bytes: xBytes + TORCH_INDEX_BYTES * yElements },
  ];
  if (info.relu) kept.push({ who: 'TensorFlow.js', what: "the ReLU's input and output, and the pool's output", bytes: 2 * xBytes + yBytes });
  return kept;
}

export function renderMemory(host: HTMLElement, info: PlanInfo): void {
  const kept = keptForBackward(info);
  const most = Math.max(1, ...kept.map((entry) => entry.bytes));
  const ours = kept[0]!.bytes;
  host.replaceChildren(
    ...kept.map(({ who, what, bytes }, at) => {
      const times = at > 0 && ours > 0 ? ` · ${Number((bytes / ours).toPrecision(2))} times ours` : '';
      const bar = html('span', { class: 'bar', style: `width: ${Math.max(0.4, (100 * bytes) / most).toFixed(2)}%` });
      return html('div', { class: `kept ${at === 0 ? 'kept-ours' : ''}` }, [
        html('span', { class: 'kept-who' }, [who]),
        html('span', { class: 'kept-bytes' }, [byteText(bytes)]),
        html('span', { class: 'bar-track', 'aria-hidden': 'true' }, [bar]),
        html('span', { class: 'kept-what' }, [what + times]),
      ]);
    }),
  );
}
