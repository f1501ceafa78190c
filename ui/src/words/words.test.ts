import { describe, expect, test } from 'vitest'
import type { WorkloadView } from '../api/views'
import { counted, cpus, gpus, inUnit, memory, milliseconds, ofMemory, percent } from './amounts'
import { clock, span, tickWords } from './times'
import { TABS, asSentence, commandWords, countIn, deviceWords, nodeWords, plannedStart, ran, shortName, stopWords, verbsFor, nodesOrReason } from './work'

describe('amounts', () => {
  test.each([
    [0, '0 GPUs'],
    [500, '0.5 GPU'],
    [333, '0.333 GPU'],
    [3500, '3.5 GPUs'],
    [64_000, '64 GPUs'],
    [12_345, '12.345 GPUs'],
    [66_003, '66.003 GPUs'],
    [8_000_000, '8,000 GPUs'],
  ])('%d milli-GPU is %s', (milli, words) => expect(gpus(milli)).toBe(words))

  test.each([
    [512, '512 MiB'],
    [1024, '1 GiB'],
    [16_000, '15.6 GiB'],
    [196_608, '192 GiB'],
    [2_359_296, '2.3 TiB'],
  ])('%d MiB is %s', (mib, words) => expect(memory(mib)).toBe(words))

  test('the unit is said once when it is the same', () => {
    expect(ofMemory(98_304, 196_608)).toBe('96 of 192 GiB')
    expect(ofMemory(512, 196_608)).toBe('512 MiB of 192 GiB')
    expect(ofMemory(0, 196_608)).toBe('0 of 192 GiB')
  })

  test('an obstacle counts in its own unit', () => {
    expect(inUnit(2500, 'milli-gpu')).toBe('2.5 GPUs')
    expect(inUnit(1, 'gpus')).toBe('1 GPU')
    expect(inUnit(8, 'gpus')).toBe('8 GPUs')
    expect(inUnit(1500, 'milli-cpu')).toBe('1.5 CPUs')
    expect(inUnit(3, 'pods')).toBe('3 pods')
    expect(inUnit(3, 'licences')).toBe('3 licences')
    expect(inUnit(3, '')).toBe('3')
  })

  test('need and have are as exact as the sentence beside them', () => {
    expect(inUnit(66_003, 'milli-gpu')).toBe('66.003 GPUs')
    expect([1000, 762, 0].map((milli) => inUnit(milli, 'milli-gpu'))).toEqual(['1 GPU', '0.762 GPU', '0 GPUs'])
    expect([64_000, 64_050].map((milli) => inUnit(milli, 'milli-cpu'))).toEqual(['64 CPUs', '64.05 CPUs'])
    expect([196_608, 196_609, 15_872, 4096].map((mib) => inUnit(mib, 'mib'))).toEqual([
      '192 GiB',
      '196,609 MiB',
      '15.5 GiB',
      '4 GiB',
    ])
    expect(inUnit(20 * 1024 * 1024, 'mib')).toBe('20 TiB')
    expect([inUnit(250_000, 'mib', 196_608), inUnit(196_608, 'mib', 250_000)]).toEqual(['250,000 MiB', '196,608 MiB'])
    expect(inUnit(512, 'mib', 196_608)).toBe('0.5 GiB')
  })

  test('small things', () => {
    expect([96_000, 1000].map(cpus)).toEqual(['96 CPUs', '1 CPU'])
    expect(percent(1, 3)).toBe('33 %')
    expect(percent(0, 0)).toBe('0 %')
    expect(counted(1, 'node')).toBe('1 node')
    expect(counted(0, 'node')).toBe('0 nodes')
    expect([0.34, 3.25, 120.4, 1500].map(milliseconds)).toEqual(['0.34 ms', '3.3 ms', '120 ms', '1.5 s'])
  })
})

describe('times', () => {
  test.each([
    [-5, '0 s'],
    [59, '59 s'],
    [60, '1 min'],
    [899, '14 min'],
    [3600, '1 h'],
    [11_520, '3 h 12 min'],
    [72_000, '20 h'],
    [100_000, '1 d 3 h'],
    [2_000_000, '23 d'],
  ])('%d s is %s', (seconds, words) => expect(span(seconds)).toBe(words))

  test('a simulated clock that counts from zero shows days', () => {
    expect(clock(90_061)).toBe('day 2, 01:01:01')
  })
})

const work = (fields: Partial<WorkloadView>): WorkloadView => ({
  name: 'default/train',
  queue: 'default',
  user: '',
  kind: 'batch',
  state: 'waiting',
  priority: 0,
  wants: '1 GPU',
  gpu_milli: 1000,
  pods: { total: 1, used: 0 },
  submitted_s: 100,
  started_s: 0,
  ended_s: 0,
  attempt: 0,
  reason: '',
  nodes: [],
  labels: {},
  planned_s: 0, array: null,
  expected_s: 0,
  expected_low_s: 0,
  expected_high_s: 0,
  ...fields,
})

describe('work', () => {
  test('the namespace default is dropped, others stay', () => {
    expect(shortName('default/train')).toBe('train')
    expect(shortName('lab/train')).toBe('lab/train')
  })

  test('the line under a name says why or where', () => {
    expect(nodesOrReason(work({ reason: 'needs 8 GPUs, 3 are free' }))).toBe('needs 8 GPUs, 3 are free')
    expect(nodesOrReason(work({ state: 'running', nodes: ['a', 'b', 'c', 'd', 'e'] }))).toBe('a, b, c and 2 more')
    expect(nodeWords(['a', 'b'])).toBe('a, b')
  })

  test('a planned start is told while it waits', () => {
    expect(plannedStart(work({ planned_s: 820 }), 100)).toBe('planned to start in 12 min')
    expect(plannedStart(work({ planned_s: 820 }), 821)).toBe('planned to start now')
    expect(plannedStart(work({}), 100)).toBe('')
    expect(plannedStart(work({ state: 'running', planned_s: 820 }), 100)).toBe('')
    expect(plannedStart(work({ state: 'held', planned_s: 820 }), 100)).toBe('')
  })

  test('a clause becomes a sentence', () => {
    expect(asSentence('planned start 14:05 on node a')).toBe('Planned start 14:05 on node a.')
    expect(asSentence('')).toBe('')
  })

  test('the run time is that of the last start, up to its end or to now', () => {
    expect(ran(work({}), 160)).toBe('–')
    expect(ran(work({ state: 'running', started_s: 130 }), 160)).toBe('30 s')
    expect(ran(work({ state: 'succeeded', started_s: 100, ended_s: 940 }), 2000)).toBe('14 min')
  })

  test('ticks of a virtual clock have no date', () => {
    expect(tickWords(2 * 86_400 + 3600, 3600)).toBe('01:00')
    expect(tickWords(2 * 86_400, 86_400)).toBe('day 3')
    expect(tickWords(1_800_000_000, 60)).toMatch(/^\d\d:\d\d$/)
    expect(tickWords(1_800_000_000, 86_400)).toMatch(/^\d+ Jan$/)
  })

  test('the tabs count their states', () => {
    const byState = { waiting: 3, held: 1, running: 5, failed: 2 }
    expect(countIn('waiting', byState)).toBe(4)
    expect(countIn('active', byState)).toBe(9)
    expect(countIn('ended', byState)).toBe(2)
  })

  test('only what makes sense can be done', () => {
    const ALL = ['cancel', 'hold', 'release', 'requeue']
    expect(verbsFor('waiting', ALL)).toContain('hold')
    expect(verbsFor('held', ALL)).toContain('release')
    expect(verbsFor('running', ALL)).toContain('cancel')
    expect(verbsFor('succeeded', ALL)).toEqual(['requeue'])
    expect(verbsFor('stopping', ALL)).toEqual([])
  })

  test('what stops work is asked about, with whose work it is and where', () => {
    const work = { state: 'running', user: 'ada', nodes: ['node-1', 'node-2'] } as unknown as WorkloadView
    expect(stopWords('requeue', work)).toBe(
      'Requeue this workload of ada? It stops on node-1, node-2 and starts again later, and loses work that it has not saved.',
    )
    expect(stopWords('cancel', work)).toContain('It stops on node-1, node-2 for good')
    expect(stopWords('cancel', { ...work, state: 'waiting', nodes: [] })).toBe('Cancel this workload of ada? It leaves its queue.')
    for (const state of ['waiting', 'held', 'succeeded', 'failed'] as const) expect(stopWords('requeue', { ...work, state })).toBe('')
    expect(stopWords('hold', work)).toBe('')
  })

  test('a part of a device is a number of GPUs', () => {
    expect([deviceWords('gpu-3:81m'), deviceWords('gpu-0')]).toEqual(['gpu-3 (0.081 GPU)', 'gpu-0'])
  })

  test('a command is shown with its quotes', () => {
    expect(commandWords(['sh', '-c', "echo 'a  b' $X"])).toBe(`sh -c 'echo '"'"'a  b'"'"' $X'`)
    expect(commandWords(['python', 'train.py', '--lr=0.1', ''])).toBe("python train.py --lr=0.1 ''")
  })

  test('a cluster offers only what it lets people do', () => {
    expect(verbsFor('waiting', ['hold', 'release'])).toEqual(['hold'])
  })

  test('whom the server would refuse is offered nothing', () => {
    const states = Object.values(TABS).flatMap((tab) => tab.states)
    expect(states.flatMap((state) => verbsFor(state, []))).toEqual([])
  })
})
