// What the cluster did: GPUs, work, queues and the scheduler over time.

import { useMemo, useState } from 'react'
import type { QueueView } from '../api/views'
import { RangeButtons } from '../charts/RangeButtons'
import { TimeChart } from '../charts/TimeChart'
import { type Wanted, useSeries } from '../charts/useSeries'
import { ErrorMessage, Panel } from '../page/Panel'

const FIRST_S = 7_200
const GPUS: Wanted[] = [
  { kind: 'cluster', measure: 'gpu_milli', label: 'All' },
  { kind: 'cluster', measure: 'gpu_used_milli', label: 'Allocated' },
]
const WORK: Wanted[] = [
  { kind: 'cluster', measure: 'running', label: 'Running' },
  { kind: 'cluster', measure: 'waiting', label: 'Waiting' },
]
const CPUS: Wanted[] = [
  { kind: 'cluster', measure: 'cpu_milli', label: 'All' },
  { kind: 'cluster', measure: 'cpu_used_milli', label: 'Allocated' },
]
const PLANS: Wanted[] = [
  { kind: 'scheduler', measure: 'starts', label: 'Pods started' },
  { kind: 'scheduler', measure: 'evictions', label: 'Pods evicted' },
]
const CYCLES: Wanted[] = [{ kind: 'scheduler', measure: 'cycle_us', label: 'Mean cycle' }]
const PROCESS: Wanted[] = [{ kind: 'process', measure: 'cpu_permille', label: 'Of one core' }]
const MEMORY: Wanted[] = [{ kind: 'process', measure: 'memory_mib', label: 'Resident' }]
const LAG: Wanted[] = [{ kind: 'process', measure: 'loop_lag_us', label: '99 of 100 are shorter' }]

interface Props {
  queues: readonly QueueView[]
  chosen: string // a queue; empty: the one that holds most
  onChoose: (queue: string) => void
}

export function UsagePage({ queues, chosen, onChoose }: Props) {
  const [last_s, setLast] = useState(FIRST_S)
  return (
    <>
      <Panel title="Cluster" aside={<RangeButtons last_s={last_s} onChoose={setLast} />}>
        <div className="charts">
          <Chart title="GPUs" wanted={GPUS} last_s={last_s} />
          <Chart title="Workloads" wanted={WORK} last_s={last_s} />
          <Chart title="CPUs" wanted={CPUS} last_s={last_s} />
        </div>
      </Panel>
      <QueueCharts {...{ queues, chosen, onChoose, last_s }} />
      <Panel title="Kaiwo">
        <div className="charts">
          <Chart title="Decisions" wanted={PLANS} last_s={last_s} />
          <Chart title="Time of a cycle" wanted={CYCLES} last_s={last_s} />
          <Chart title="Processor time" wanted={PROCESS} last_s={last_s} />
          <Chart title="Memory" wanted={MEMORY} last_s={last_s} />
          <Chart title="Delay of its event loop" wanted={LAG} last_s={last_s} />
        </div>
      </Panel>
    </>
  )
}

function Chart({ title, wanted, last_s }: { title: string; wanted: readonly Wanted[]; last_s: number }) {
  const { data, problem } = useSeries(wanted, last_s)
  return <TimeChart title={title} data={data} problem={problem} />
}

/** One queue: what it used, its fair share and its quota, and its work. */
function QueueCharts({ queues, chosen, onChoose, last_s }: Props & { last_s: number }) {
  const queue = queues.some((each) => each.name === chosen) ? chosen : busiest(queues)
  const wanted = useMemo(() => queueLines(queue), [queue])
  const { data, problem } = useSeries(wanted.gpus, last_s)
  const work = useSeries(wanted.work, last_s)
  if (!queue) return null
  const choose = (
    <select aria-label="Queue" value={queue} onChange={(event) => onChoose(event.target.value)}>
      {queues.map((each) => (
        <option key={each.name} value={each.name}>
          {'\u00a0\u00a0'.repeat(each.depth) + each.name}
        </option>
      ))}
    </select>
  )
  return (
    <Panel title="Queue" aside={choose}>
      {(problem || work.problem) && <ErrorMessage>{problem || work.problem}</ErrorMessage>}
      <div className="charts">
        <TimeChart title={`GPUs of ${queue}`} data={data} />
        <TimeChart title={`Workloads of ${queue}`} data={work.data} />
      </div>
    </Panel>
  )
}

const busiest = (queues: readonly QueueView[]) =>
  queues.reduce<QueueView | undefined>((most, each) => (most && most.gpu_milli.used >= each.gpu_milli.used ? most : each), undefined)?.name ?? ''

function queueLines(queue: string): { gpus: Wanted[]; work: Wanted[] } {
  if (!queue) return { gpus: [], work: [] }
  const line = (measure: string, label: string): Wanted => ({ kind: 'queue', measure, names: [queue], label })
  return {
    gpus: [line('gpu_used_milli', 'Used'), line('gpu_share_milli', 'Fair share'), line('gpu_quota_milli', 'Quota')],
    work: [line('running', 'Running'), line('waiting', 'Waiting')],
  }
}
