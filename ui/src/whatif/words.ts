// What a what-if question says, and its answer in words.
//
// In: the fields of the form. Out: the question, or the sentence that says what is wrong with a field.

import type { WhatIfQuestion } from '../api/client'
import type { WhatIfView } from '../api/views'
import { count, counted } from '../words/amounts'
import { span } from '../words/times'

export function readQuestion(given: (name: string) => string): WhatIfQuestion | string {
  const question: WhatIfQuestion = {}
  const queue = given('queue')
  for (const [field, target] of [
    ['quota', 'quotas'],
    ['limit', 'limits'],
  ] as const) {
    const text = given(field)
    if (!text) continue
    if (!queue) return `Choose the queue whose ${field} changes.`
    if (!/^\d{1,7}$/.test(text)) return `A ${field} is a whole number of GPUs, not ${text}.`
    question[target] = { [queue]: Number(text) }
  }
  const nodes = given('nodes')
  if (nodes && !/^[1-9]\d{0,3}$/.test(nodes)) return `More nodes is a whole number of nodes, not ${nodes}.`
  if (nodes) question.add_nodes = [{ count: Number(nodes), ...(given('model') ? { model: given('model') } : {}) }]
  const without = given('without').split(/[\s,]+/).filter(Boolean)
  if (without.length) question.remove_nodes = without
  return Object.keys(question).length ? question : 'Change something first: a quota, a limit, or the nodes.'
}

/** One value where both are the same, else "before → after". */
export const both = (pair: readonly number[], words: (value: number) => string = count) => {
  const [before, after] = [words(pair[0] ?? 0), words(pair[1] ?? 0)]
  return before === after ? before : `${before} → ${after}`
}

export const bothSpans = (pair: readonly number[]) => both(pair, span)

export const gpuHours = (pair: readonly number[]) => both(pair, (value) => value.toLocaleString('en-US', { maximumFractionDigits: 1 }))

export function utilisationWords({ utilisation, gpus, until_s, as_of_s }: WhatIfView): string {
  const use = (index: number) => `${Math.round(100 * (utilisation[index] ?? 0))} % of ${counted(gpus[index] ?? 0, 'GPU')}`
  const [before, after] = [use(0), use(1)]
  const took = both(until_s.map((end) => end - as_of_s), span)
  return `GPUs in use until all work has ended: ${before === after ? before : `${before} → ${after}`}. That takes ${took}.`
}
