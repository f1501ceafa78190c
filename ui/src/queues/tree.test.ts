import { describe, expect, test } from 'vitest'
import type { AmountView, QueueView } from '../api/views'
import { amountWords, bar, type Branch, buildTree, workWords } from './tree'

const amount = (fields: Partial<AmountView>): AmountView => ({
  quota: 0,
  limit: -1,
  weight: 1,
  used: 0,
  waiting: 0,
  fixed: 0,
  share: 0,
  ...fields,
})

function queue(name: string, parent = '', fields: Partial<QueueView> = {}): QueueView {
  const none = amount({})
  const amounts = { gpu_milli: none, cpu_milli: none, memory_mib: none }
  const rest = { display_name: '', priority: 0, depth: 0, is_leaf: true, running: 0, waiting: 0, gpu_models: {} }
  const rules = { policy: 'DRF', reclaim_strategy: 'aggressive', min_runtime_s: 0, created_s: 0, max_priority: 0, max_threads: 0, default_threads: 0, max_share_mib: 0 } as const
  return { name, parent, ...amounts, ...rest, ...rules, namespaces: [], users: [], share_with: [], ...fields }
}

const drawn = (branches: Branch[]): unknown => branches.map((b) => (b.below.length ? [b.queue.name, drawn(b.below)] : b.queue.name))

describe('the tree', () => {
  test('puts children under their parents, in any order of arrival', () => {
    const queues = [queue('a', 'root'), queue('root'), queue('b', 'root'), queue('c', 'b')]
    expect(drawn(buildTree(queues))).toEqual([['root', ['a', ['b', ['c']]]]])
  })

  test('loses no queue whose parent is unknown, or is itself', () => {
    expect(drawn(buildTree([queue('x', 'gone'), queue('y', 'y')]))).toEqual(['x', 'y'])
  })
})

describe('a bar', () => {
  test('is as long as the limit, or the cluster', () => {
    expect(bar(amount({ used: 8000, quota: 16_000, limit: 32_000 }), 64_000)).toEqual({ within: 0.25, over: 0, quota: 0.5, share: null })
    expect(bar(amount({ used: 24_000, quota: 16_000 }), 64_000)).toEqual({ within: 0.25, over: 0.125, quota: 0.25, share: null })
  })

  test('has no mark without a quota, or where the quota is everything', () => {
    expect(bar(amount({ used: 500 }), 1000)).toEqual({ within: 0, over: 0.5, quota: null, share: null })
    expect(bar(amount({ used: 500, quota: -1 }), 1000)).toEqual({ within: 0.5, over: 0, quota: null, share: null })
    expect(bar(amount({ used: 500, quota: 1000, limit: 1000 }), 1000).quota).toBeNull()
  })

  test('marks the fair share, at its end when that is beyond', () => {
    expect(bar(amount({ share: 8000 }), 32_000).share).toBe(0.25)
    expect(bar(amount({ share: 8000, limit: 4000 }), 32_000).share).toBe(1)
  })

  test('never divides by nothing', () => expect(bar(amount({ limit: 0 }), 0)).toEqual({ within: 0, over: 0, quota: null, share: null }))
})

describe('the words', () => {
  test('say quota, what is over it, the fair share and the limit', () => {
    const borrowing = amount({ used: 20_500, quota: 16_000, share: 18_000, limit: 32_000 })
    expect(amountWords(borrowing)).toBe('20.5 of 16 GPUs in quota (4.5 over), fair share 18 GPUs, limit 32 GPUs')
    expect(amountWords(amount({ used: 8000, quota: 16_000 }))).toBe('8 of 16 GPUs in quota, fair share 0 GPUs')
    expect(amountWords(amount({ used: 500 }))).toBe('0.5 GPU used, no quota, fair share 0 GPUs')
    expect(amountWords(amount({ used: 500, quota: -1 }))).toBe('0.5 GPU used, unlimited quota, fair share 0 GPUs')
  })

  test('say what runs and what waits', () => {
    expect(workWords(queue('q', '', { running: 3 }))).toBe('3 running, none waiting')
    expect(workWords(queue('q', '', { waiting: 2, gpu_milli: amount({ waiting: 12_000 }) }))).toBe('0 running, 2 waiting for 12 GPUs')
  })
})
