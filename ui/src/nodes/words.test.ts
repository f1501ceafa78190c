import { expect, test } from 'vitest'
import type { NodeView } from '../api/views'
import { drainWords, verbsOfNode } from './words'

test('only operators may change nodes, and a cordoned node can be opened', () => {
  expect(verbsOfNode('ready', ['read', 'submit'])).toEqual([])
  expect(verbsOfNode('ready', ['read', 'operate'])).toEqual(['cordon', 'drain'])
  expect(verbsOfNode('cordoned', ['operate'])).toEqual(['uncordon', 'drain'])
})

test('draining names each workload once, with its user and what it holds', () => {
  const tenant = (workload: string, milli: number, user: string) => ({ workload, milli, user })
  const gpus = [{ tenants: [tenant('default/train', 1000, 'ada'), tenant('lab/share', 500, '')] }, { tenants: [tenant('default/train', 1000, 'ada')] }]
  expect(drainWords({ gpus } as unknown as NodeView)).toEqual(['train of ada (2 GPUs)', 'lab/share (0.5 GPU)'])
})
