// The words of advice: how many nodes, parts of a whole, and measures with their unit.

import type { CapacityOutlookView, TrendView } from '../api/views'
import { count, counted, gpuNumber } from '../words/amounts'

export function nodesToAdd({ model, add_nodes }: CapacityOutlookView): string {
  return add_nodes ? `${counted(add_nodes, 'more node')}${model && ` of ${model}`}` : 'as it is'
}

export const partWords = (part: number) => `${Math.round(100 * part)} %`

/** `gpu_used_milli` -> "GPU used", in GPUs; other measures are counts. */
export function trendWords({ measure, before, now, per_day }: TrendView): { what: string; before: string; now: string; perDay: string } {
  const isMilli = measure.endsWith('_milli')
  const words = measure.replace(/_milli$/, '').replaceAll('_', ' ').replace(/^gpu\b/, 'GPU').replace(/^cpu\b/, 'CPU')
  const amount = isMilli ? gpuNumber : count
  return { what: words, before: amount(before), now: amount(now), perDay: `${per_day > 0 ? '+' : ''}${amount(per_day)}` }
}
