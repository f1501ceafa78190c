import { expect, test } from 'vitest'
import { nodesToAdd, trendWords } from './words'

test('nodes to add name their model', () => {
  const outlook = { gpus: 64, p50_wait_s: 0, p90_wait_s: 0, mean_wait_s: 0, started: 1, utilisation: 1 }
  expect(nodesToAdd({ ...outlook, model: '', add_nodes: 0 })).toBe('as it is')
  expect(nodesToAdd({ ...outlook, model: 'H200', add_nodes: 1 })).toBe('1 more node of H200')
})

test('amounts of GPUs are told in GPUs, and rises have a sign', () => {
  const trend = { kind: 'cluster', name: '', span_h: 24, full_in_days: null }
  expect(trendWords({ ...trend, measure: 'gpu_used_milli', before: 1500, now: 4000, per_day: 2500 })).toEqual({
    what: 'GPU used',
    before: '1.5',
    now: '4',
    perDay: '+2.5',
  })
  expect(trendWords({ ...trend, measure: 'waiting', before: 9, now: 4, per_day: -5 })).toMatchObject({ what: 'waiting', perDay: '-5' })
})
