// Everything about one node: its state and what may be done to it, its GPUs, and how it was used.

import { useEffect, useMemo, useRef, useState } from 'react'
import type { GpuView, NodeView } from '../api/views'
import { RangeButtons } from '../charts/RangeButtons'
import { TimeChart } from '../charts/TimeChart'
import { type Wanted, useSeries } from '../charts/useSeries'
import { usePolled } from '../live/hooks'
import { gpuState } from '../map/positions'
import { ErrorMessage, Skeleton } from '../page/Panel'
import { cpus, gpuNumber, gpus, memory, ofMemory } from '../words/amounts'
import { shortName } from '../words/work'
import { NodeActions } from './NodeActions'

const AGAIN_MS = 2000
const HOURS_S = 7_200

interface Props {
  name: string
  onPick: (workload: string) => void
  onClose: () => void
}

export function NodeDetail({ name, onPick, onClose }: Props) {
  const [acted, setActed] = useState(0) // counts what was done here, so that the answer is asked for at once
  const { value: node, problem } = usePolled<NodeView>(`/nodes/${encodeURIComponent(name)}`, AGAIN_MS, `${acted}`)
  const title = useRef<HTMLHeadingElement>(null)
  useEffect(() => title.current?.focus(), [name])
  return (
    <section
      className="detail node-detail"
      aria-label={`Node ${name}`}
      onKeyDown={(event) => event.key === 'Escape' && onClose()}
    >
      <div className="detail-head">
        <div>
          <h2 ref={title} tabIndex={-1}>
            {name}
          </h2>
          {node && <NodeState node={node} />}
        </div>
        <button type="button" onClick={onClose} aria-label="Close the node">
          Close
        </button>
      </div>
      {problem && <ErrorMessage>{problem}</ErrorMessage>}
      {!node && !problem && <Skeleton rows={5} />}
      {node && (
        <>
          <NodeActions node={node} onDone={() => setActed((before) => before + 1)} />
          <NodeAmounts node={node} />
          <Devices node={node} onPick={onPick} />
          <NodeCharts node={node} />
        </>
      )}
    </section>
  )
}

function NodeState({ node }: { node: NodeView }) {
  const state = node.state.replace('-', ' ')
  return (
    <p className={node.state === 'ready' ? 'muted' : 'node-out'}>
      {state}
      {node.reason && `: ${node.reason}`}
      {node.agent && <span className="muted">agent {node.agent.state}</span>}
    </p>
  )
}

function NodeAmounts({ node }: { node: NodeView }) {
  const { gpu_milli, cpu_milli, memory_mib, pods } = node
  return (
    <dl className="facts">
      <Fact name="GPUs">{`${gpuNumber(gpu_milli.used)} of ${gpus(gpu_milli.total)} allocated`}</Fact>
      <Fact name="CPUs">{`${gpuNumber(cpu_milli.used)} of ${cpus(cpu_milli.total)}`}</Fact>
      <Fact name="Memory">{ofMemory(memory_mib.used, memory_mib.total)}</Fact>
      <Fact name="Pods">{`${pods.used} of ${pods.total}`}</Fact>
      {node.taints.length > 0 && <Fact name="Taints">{node.taints.join(', ')}</Fact>}
      {Object.keys(node.labels).length > 0 && (
        <Fact name="Labels">
          {Object.entries(node.labels)
            .map(([key, value]) => `${key}=${value}`)
            .join(', ')}
        </Fact>
      )}
    </dl>
  )
}

function Fact({ name, children }: { name: string; children: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

function Devices({ node, onPick }: { node: NodeView; onPick: (workload: string) => void }) {
  if (!node.gpus.length) return <p className="muted">This node has no GPUs.</p>
  return (
    <section>
      <h3>GPUs</h3>
      <ul className="device-rows">
        {node.gpus.map((gpu) => (
          <Device key={gpu.id} gpu={gpu} onPick={onPick} />
        ))}
      </ul>
    </section>
  )
}

/** Two bars a device: what is allocated, and how busy it is. What nobody measures has no bar. */
function Device({ gpu, onPick }: { gpu: GpuView; onPick: (workload: string) => void }) {
  const state = gpuState(gpu)
  const allocated = 100 - gpu.free_milli / 10
  const busy = gpu.measured?.busy_percent ?? null
  return (
    <li>
      <p>
        <strong>{gpu.id}</strong> <span className="muted">{[gpu.model, gpu.profile, memory(gpu.memory_mib)].filter(Boolean).join(', ')}</span>{' '}
        {state}
        {!gpu.healthy && gpu.reason && `: ${gpu.reason}`}
      </p>
      <Bar title="allocated" percent={allocated} />
      {busy === null ? <p className="unknown-bar muted">use unknown</p> : <Bar title="busy" percent={busy} isUse />}
      {gpu.tenants.length > 0 && (
        <p className="device-tenants">
          {gpu.tenants.map((tenant) => (
            <span key={tenant.workload + tenant.pod}>
              <button type="button" className="link" onClick={() => onPick(tenant.workload)}>
                {shortName(tenant.workload)}
              </button>{' '}
              <span className="muted">
                {gpus(tenant.milli)}
                {tenant.user && `, ${tenant.user}`}
                {tenant.queue && `, ${tenant.queue}`}
              </span>
            </span>
          ))}
        </p>
      )}
    </li>
  )
}

function Bar({ title, percent, isUse = false }: { title: string; percent: number; isUse?: boolean }) {
  const shown = Math.round(Math.min(100, Math.max(0, percent)))
  return (
    <p className="bar-line">
      <span className={isUse ? 'meter use' : 'meter'} aria-hidden="true">
        <span style={{ width: `${shown}%` }} />
      </span>
      <span>
        {shown} % {title}
      </span>
    </p>
  )
}

const GPU_MEASURES: [string, string][] = [
  ['utilisation_percent', 'Use of its GPUs'],
  ['memory_used_mib', 'Used GPU memory'],
  ['power_w', 'Power'],
  ['temperature_c', 'Temperature'],
]

/** Of the whole node, and of each GPU what its agent measures. A node without an agent has no such charts. */
function NodeCharts({ node }: { node: NodeView }) {
  const [last_s, setLast] = useState(HOURS_S)
  const held = useMemo<Wanted[]>(
    () => [{ kind: 'node', measure: 'gpu_used_milli', names: [node.name], label: 'Allocated GPUs' }],
    [node.name],
  )
  const { data, problem } = useSeries(held, last_s)
  const names = JSON.stringify(node.agent ? node.gpus.slice(0, 8).map((gpu) => `${node.name}/${gpu.id}`) : [])
  return (
    <section>
      <div className="section-head">
        <h3>Over time</h3>
        <RangeButtons last_s={last_s} onChoose={setLast} />
      </div>
      <TimeChart title="Allocated GPUs" data={data} problem={problem} />
      {node.agent
        ? GPU_MEASURES.map(([measure, title]) => (
            <DeviceChart key={measure} {...{ names, measure, title, last_s }} />
          ))
        : node.gpus.length > 0 && <p className="muted">No agent runs on this node, so the use of its GPUs is unknown.</p>}
    </section>
  )
}

function DeviceChart({ names, measure, title, last_s }: { names: string; measure: string; title: string; last_s: number }) {
  const wanted = useMemo<Wanted[]>(() => {
    const devices = JSON.parse(names) as string[]
    return devices.length ? [{ kind: 'gpu', measure, names: devices }] : []
  }, [names, measure])
  const { data, problem } = useSeries(wanted, last_s)
  return <TimeChart title={title} data={data} problem={problem} />
}
