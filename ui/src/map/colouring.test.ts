import { expect, test } from 'vitest'
import type { GpuView, NodeFragmentsView, NodeView, ReservationView, TenantView } from '../api/views'
import { MOST_NAMES, colouring, placeOf } from './colouring'
import { matches } from './matching'

const tenant = (queue: string, milli = 1000, user = 'ada'): TenantView => ({
  workload: `default/${queue}-job`,
  pod: 'main-0',
  milli,
  mib: 0,
  phase: 'running',
  grade: '',
  measured: null,
  queue,
  user,
})

const gpu = (index: number, tenants: TenantView[], change: Partial<GpuView> = {}): GpuView => ({
  node: 'node-1',
  id: `gpu-${index}`,
  index,
  model: 'MI300X',
  memory_mib: 196_608,
  free_milli: 0,
  free_mib: 0,
  healthy: true,
  reason: '',
  tenants,
  profile: '',
  parent: '',
  measured: null,
  change: '',
  ...change,
})

const nothing = { total: 0, used: 0 }
const node = (gpus: GpuView[], name = 'node-1'): NodeView => ({
  name,
  state: 'ready',
  reason: '',
  labels: { 'topology.kaiwo.ai/leaf': 'leaf-7' },
  taints: [],
  cpu_milli: nothing,
  memory_mib: nothing,
  pods: nothing,
  gpu_milli: nothing,
  gpus,
  agent: null,
})

const UNKNOWN = { reservations: [], fragments: [], use: {} }

test('queues get colours in the order of their names, and what no queue has has a word', () => {
  const colours = colouring('queue', [node([gpu(0, [tenant('vision')]), gpu(1, [tenant('lab')]), gpu(2, [tenant('')])])], UNKNOWN)
  expect(colours.names).toEqual(['lab', 'not known', 'vision'])
  expect(placeOf(colours, 'vision')).toBe(2)
  expect(colours.hasOthers).toBe(false)
})

test('with more queues than colours, those that hold least share one', () => {
  const tenants = Array.from({ length: MOST_NAMES + 2 }, (_, index) => gpu(index, [tenant(`q${index}`, 1000 - index)]))
  const colours = colouring('queue', [node(tenants)], UNKNOWN)
  expect(colours.names).toEqual(['q0', 'q1', 'q2', 'q3', 'q4', 'q5'])
  expect(colours.hasOthers).toBe(true)
  expect(placeOf(colours, 'q7')).toBe(MOST_NAMES)
})

test('a reserved GPU is known by its reservation, its partitions too, until it has expired', () => {
  const reservation = (name: string, phase: ReservationView['phase'], device: string) =>
    ({ name, phase, devices: [{ node: 'node-1', gpu: device }] }) as unknown as ReservationView
  const known = {
    use: {},
    fragments: [],
    reservations: [reservation('demo', 'active', 'gpu-0'), reservation('old', 'expired', 'gpu-1')],
  }
  const gpus = [gpu(0, []), gpu(1, []), gpu(2, [], { parent: 'gpu-0' })]
  const colours = colouring('reserved', [node(gpus)], known)
  expect(gpus.map((each) => colours.deviceName?.(each, node(gpus)))).toEqual(['demo', '', 'demo'])
  expect(colours.names).toEqual(['demo'])
})

test('stranded is a part of what is free', () => {
  const fragments = [{ node: 'node-1', free_gpu_milli: 4000, stranded_milli: 1000 } as NodeFragmentsView]
  expect(colouring('stranded', [], { reservations: [], fragments, use: {} }).stranded?.get('node-1')).toBe(0.25)
})

test('partition modes and models are those of devices', () => {
  const nodes = [node([gpu(0, [], { profile: 'CPX+NPS4' }), gpu(1, [], { model: 'H200' })])]
  expect(colouring('mode', nodes, UNKNOWN).names).toEqual(['CPX+NPS4', 'not partitioned'])
  expect(colouring('model', nodes, UNKNOWN).names).toEqual(['H200', 'MI300X'])
})

test('a search finds nodes by name, label, work, user and queue, and by all words together', () => {
  const found = node([gpu(0, [tenant('vision')])])
  for (const search of ['', 'NODE-1', 'leaf=leaf-7', 'vision-job', 'ada', 'mi300x ready']) expect(matches(found, search)).toBe(true)
  for (const search of ['node-2', 'ada bob']) expect(matches(found, search)).toBe(false)
})

test('use says who holds a GPU and does nothing with it, and unknown is not idle', () => {
  const gpus = [gpu(0, [tenant('lab')]), gpu(1, [tenant('lab')]), gpu(2, []), gpu(3, [tenant('lab')]), gpu(4, [])]
  const holder = node(gpus)
  const colours = colouring('use', [holder], { reservations: [], fragments: [], use: { 'node-1': [0, 83, 0, null, null] } })
  expect(gpus.map((each) => colours.deviceName?.(each, holder))).toEqual([
    'held, and does nothing',
    'more than 75 % busy',
    'free',
    'use unknown',
    'free',
  ])
  expect(colours.names.length).toBeLessThanOrEqual(MOST_NAMES)
})

test('health is that of the GPU, then that of its node', () => {
  const sick = gpu(0, [], { healthy: false })
  const colours = colouring('health', [], UNKNOWN)
  const state = (name: string) => ({ ...node([]), state: name })
  expect(colours.deviceName?.(sick, state('ready'))).toBe('unhealthy')
  expect(colours.deviceName?.(gpu(1, []), state('not-ready'))).toBe('its node is not ready')
  expect(colours.deviceName?.(gpu(1, []), state('ready'))).toBe('healthy')
})
