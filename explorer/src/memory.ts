// The bytes each library keeps from forward to backward for this layer, as bars of one scale.
//
// Ours is what the library's plan says. PyTorch saves the input and one 64-bit index per output; TensorFlow saves the
// input and the output, and so does TensorFlow.js.
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
  return [
    { who: 'poolgrad', what: `routes, ${info.routeBits} bits per output`, bytes: info.routeBytes },
    { who: 'TensorFlow', what: 'the input and the output', bytes: info.xBytes + info.yBytes },
    {
      who: 'PyTorch',
      what: `the input and ${TORCH_INDEX_BYTES} bytes per output`,
      bytes: info.xBytes + TORCH_INDEX_BYTES * info.yElements,
    },
  ];
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
