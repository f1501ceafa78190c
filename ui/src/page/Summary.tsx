// The cluster in six numbers.

import type { ReactNode } from 'react'
import type { StatusView } from '../api/views'
import { count, counted, gpuNumber, milliseconds, percent } from '../words/amounts'
import { countIn } from '../words/work'

export function Summary({ status }: { status: StatusView | undefined }) {
  if (!status) return <SummarySkeleton />
  const { gpus, gpu_milli, nodes, nodes_out, workloads, last_cycle } = status
  const waiting = countIn('waiting', workloads)
  return (
    <dl className="summary" aria-label="Summary">
      <Fact name="GPUs in use" value={count(gpus.used)} of={count(gpus.total)}>
        <Meter used={gpus.used} total={gpus.total} />
      </Fact>
      <Fact name="GPU allocated" value={gpuNumber(gpu_milli.used)} of={gpuNumber(gpu_milli.total)}>
        <Meter used={gpu_milli.used} total={gpu_milli.total} />
      </Fact>
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

function Meter({ used, total }: { used: number; total: number }) {
  return (
    <span className="meter-line">
      <span className="meter" aria-hidden="true">
        <span style={{ width: `${total ? (100 * used) / total : 0}%` }} />
      </span>
      {percent(used, total)}
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
