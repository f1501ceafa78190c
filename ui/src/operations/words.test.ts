import { expect, test } from 'vitest'
import type { FailureView, ReservationView } from '../api/views'
import { failedThing, ownerWords, timesOf } from './words'

test('a failure names the GPU, the node or the domain', () => {
  const failure = (fields: Partial<FailureView>) => failedThing({ name: 'node-1', gpu: '', domain: '', ...fields } as FailureView)
  expect(failure({})).toBe('node-1')
  expect(failure({ gpu: 'gpu-3' })).toBe('gpu-3 of node-1')
  expect(failure({ name: 'leaf-2', domain: 'leaf' })).toBe('leaf-2 (leaf)')
})

test('a reservation is for its owner, or for work that names it', () => {
  const owner = (owner_kind: string, name: string) => ownerWords({ owner_kind, owner: name } as ReservationView)
  expect(owner('queue', 'research')).toBe('queue research')
  expect(owner('workload', 'default/train')).toBe('workload train')
  expect(owner('pool', '')).toBe('work that names it')
})

test('a reservation counts from now', () => {
  expect(timesOf({ phase: 'pending', start_s: 1600, end_s: 5200 }, 1000)).toBe('in 10 min, for 1 h')
  expect(timesOf({ phase: 'active', start_s: 400, end_s: 1600 }, 1000)).toBe('now, for 10 min')
  expect(timesOf({ phase: 'active', start_s: 400, end_s: 0 }, 1000)).toBe('now, without an end')
  expect(timesOf({ phase: 'expired', start_s: 400, end_s: 700 }, 1000)).toBe('ended 5 min ago')
})
