// The cluster in six numbers.

import type { ReactNode } from 'react'
import type { GpuUseView, StatusView } from '../api/views'
import { usePolled } from '../live/hooks'
import { count, counted, gpuNumber, milliseconds, percent } from '../words/amounts'
import { countIn } from '../words/work'

const USE_AGAIN_MS = 10_000

interface Props {
  status: StatusView | undefined
  isMeasured: boolean // some node has an agent
}

export function Summary({ status, isMeasured }: Props) {
  const { value: use } = usePolled<GpuUseView>(isMeasured ? '/gpus/use' : '', USE_AGAIN_MS)
  if (!status) return <SummarySkeleton />
  const { gpus, gpu_milli, nodes, nodes_out, workloads, last_cycle } = status
  const waiting = countIn('waiting', workloads)
  return (
    <dl className="summary" aria-label="Summary">
      <Fact name="GPUs allocated" value={gpuNumber(gpu_milli.used)} of={gpuNumber(gpu_milli.total)}>
        <Meter used={gpu_milli.used} total={gpu_milli.total} />
      </Fact>
      <GpusBusy use={use} gpus={gpus.total} />
      <Fact name="Running" value={count(countIn('running', workloads))}>
        {workloads.starting ? `${count(workloads.starting)} starting` : `on ${counted(nodes.used, 'node')}`}
      </Fact>
      <Fact name="Waiting" value={count(waiting)}>
        {workloads.held ? `${count(workloads.held)} held` : waiting ? 'each with its reason' : 'none waiting'}
      </Fact>
      <Fact name="Nodes out" value={count(nodes_out)} of={count(nodes.total)} isWarning={nodes_out > 0}>
        {nodes_out ? 'not accepting work' : 'all accept work'}
      </Fact>
      <Fact name="Last cycle" value={last_cycle ? milliseconds(last_cycle.took_ms) : '–'}>
        {last_cycle ? `${counted(last_cycle.starts, 'start')}, cycle ${count(last_cycle.number)}` : 'none yet'}
      </Fact>
    </dl>
  )
}

interface FactProps {
  name: string
  value: string
  of?: string
  isWarning?: boolean
  children: ReactNode
}

function Fact({ name, value, of, isWarning = false, children }: FactProps) {
  return (
    <div className={isWarning ? 'fact warning' : 'fact'}>
      <dt>{name}</dt>
      <dd>
        <span className="value">{value}</span>
        {of !== undefined && <span className="of"> of {of}</span>}
        <span className="under">{children}</span>
      </dd>
    </div>
  )
}

/** Beside what is allocated: how busy GPUs are. What no agent measures is unknown, and has no bar. */
function GpusBusy({ use, gpus }: { use: GpuUseView | null; gpus: number }) {
  const measured = Object.values(use?.nodes ?? {}).flatMap((node) => node.filter((percent) => percent !== null))
  if (!measured.length) {
    return (
      <Fact name="GPUs busy" value="unknown">
        no agent measures them
      </Fact>
    )
  }
  const mean = measured.reduce((sum, percent) => sum + percent, 0) / measured.length
  return (
    <Fact name="GPUs busy" value={`${Math.round(mean)} %`}>
      {measured.length === gpus ? <Meter used={mean} total={100} isUse /> : `of the ${count(measured.length)} that are measured`}
    </Fact>
  )
}

function Meter({ used, total, isUse = false }: { used: number; total: number; isUse?: boolean }) {
  return (
    <span className="meter-line">
      <span className={isUse ? 'meter use' : 'meter'} aria-hidden="true">
        <span style={{ width: `${total ? (100 * used) / total : 0}%` }} />
      </span>
      {!isUse && percent(used, total)}
    </span>
  )
}

function SummarySkeleton() {
  return (
    <div className="summary" role="status" aria-label="Loading">
      {Array.from({ length: 6 }, (_, index) => (
        <div className="fact" key={index}>
          <span className="bone" />
          <span className="bone tall" />
        </div>
      ))}
    </div>
  )
}
