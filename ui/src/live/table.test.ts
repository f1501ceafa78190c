import { describe, expect, test } from 'vitest'
import { applyDelta, fromReset, keyOf } from './table'

interface Row {
  name: string
  state: string
}

const start = fromReset<Row>({
  view: 'workloads',
  items: [
    { name: 'default/a', state: 'running' },
    { name: 'default/b', state: 'waiting' },
  ],
  total: 2,
  next: '',
  key: 'name',
})
const names = (rows: readonly Row[]) => rows.map((row) => row.name)

describe('a delta', () => {
  test('changes a row in its place and leaves the others the same objects', () => {
    const after = applyDelta(start, { set: [{ name: 'default/b', state: 'running' }], gone: [], total: 2 })
    expect(names(after.rows)).toEqual(['default/a', 'default/b'])
    expect(after.rows[1]?.state).toBe('running')
    expect(after.rows[0]).toBe(start.rows[0])
  })

  test('puts a new row where the order says', () => {
    const after = applyDelta(start, {
      set: [{ name: 'default/c', state: 'waiting' }],
      order: ['default/c', 'default/a', 'default/b'],
      total: 3,
    })
    expect(names(after.rows)).toEqual(['default/c', 'default/a', 'default/b'])
    expect(after.total).toBe(3)
  })

  test('appends a new row when there is no order', () => {
    expect(names(applyDelta(start, { set: [{ name: 'default/c', state: 'held' }] }).rows)).toContain('default/c')
  })

  test('drops what is gone, and what the order no longer names', () => {
    expect(names(applyDelta(start, { gone: ['default/a'], total: 1 }).rows)).toEqual(['default/b'])
    expect(names(applyDelta(start, { order: ['default/a'] }).rows)).toEqual(['default/a'])
  })

  test('never invents a row that the order names but nobody sent', () => {
    expect(names(applyDelta(start, { order: ['default/x', 'default/b'] }).rows)).toEqual(['default/b'])
  })

  test('does not change the table it was given', () => {
    applyDelta(start, { set: [{ name: 'default/a', state: 'failed' }], gone: ['default/b'], total: 1 })
    expect(start.rows[0]?.state).toBe('running')
    expect(start.total).toBe(2)
  })

  test('keeps the total and the cursor when it does not name them', () => {
    const after = applyDelta({ ...start, next: 'cursor' }, { set: [] })
    expect([after.total, after.next]).toEqual([2, 'cursor'])
  })
})

test('each view has its own key', () => {
  expect(keyOf('gpus', { node: 'n1', id: 'gpu-3' })).toBe('n1/gpu-3')
  expect(keyOf('status', { cluster: {} })).toBe('cluster')
  expect(keyOf('queues', { name: 'lab' })).toBe('lab')
})
