// What a device, or a node, is and who is on it: the small card beside it.

import type { CSSProperties } from 'react'
import type { GpuView, NodeView, TenantView } from '../api/views'
import { cpus, gpuNumber, gpus, memory, ofMemory } from '../words/amounts'
import { PHASES, shortName } from '../words/work'
import type { Box } from './layout'
import { type FoundPosition, gpuState } from './positions'
import { measuredWords, useMeasured } from './useMeasured'

const WIDTH = 272

interface Props {
  found: FoundPosition
  isPinned: boolean
  place: { width: number; top: number } // of the map's window
  onPick: (workload: string) => void
  onPickNode: (node: string) => void
  onClose: () => void
}

export function DeviceCard({ found, isPinned, place, onPick, onPickNode, onClose }: Props) {
  const { node, gpu } = found
  const measured = useMeasured(node.name, gpu?.id ?? '', isPinned)
  return (
    <div className={isPinned ? 'device-card pinned' : 'device-card'} style={beside(found.box, place)}>
      <div className="device-card-head">
        <strong>{gpu ? `${node.name} / ${gpu.id}` : node.name}</strong>
        {isPinned && (
          <button type="button" className="quiet" aria-label="Close the device's card" onClick={onClose}>
            ×
          </button>
        )}
      </div>
      {gpu && <DeviceFacts gpu={measured ?? gpu} isPinned={isPinned} onPick={onPick} />}
      <NodeFacts node={node} />
      {isPinned && (
        <button type="button" className="open-node" onClick={() => onPickNode(node.name)}>
          Open node {node.name}
        </button>
      )}
    </div>
  )
}

function DeviceFacts({ gpu, isPinned, onPick }: { gpu: GpuView; isPinned: boolean; onPick: (name: string) => void }) {
  const state = gpuState(gpu)
  const use = measuredWords(gpu.measured)
  return (
    <>
      <p>
        {gpu.model}, {gpu.profile && `${gpu.profile}, `}
        {memory(gpu.memory_mib)}: {state}
        {state === 'shared' && `, ${gpus(gpu.free_milli)} and ${memory(gpu.free_mib)} free`}
        {!gpu.healthy && gpu.reason && `, ${gpu.reason}`}
        {use && `; measured: ${use}`}
      </p>
      {gpu.tenants.length > 0 && (
        <ul>
          {gpu.tenants.map((tenant) => (
            <li key={tenant.workload + tenant.pod}>
              {isPinned ? (
                <button type="button" className="link" onClick={() => onPick(tenant.workload)}>
                  {shortName(tenant.workload)}
                </button>
              ) : (
                <span>{shortName(tenant.workload)}</span>
              )}
              <span className="muted"> {tenantWords(tenant)}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  )
}

function NodeFacts({ node }: { node: NodeView }) {
  const state = node.state.replace('-', ' ')
  return (
    <p className="muted">
      Node {node.reason ? `${state}: ${node.reason}` : state}; {gpuNumber(node.gpu_milli.used)} of{' '}
      {gpus(node.gpu_milli.total)}, {gpuNumber(node.cpu_milli.used)} of {cpus(node.cpu_milli.total)},{' '}
      {ofMemory(node.memory_mib.used, node.memory_mib.total)} in use.
      {node.taints.length > 0 && ` Taints: ${node.taints.join(', ')}.`}
    </p>
  )
}

function tenantWords(tenant: TenantView): string {
  const use = measuredWords(tenant.measured)
  const apart = tenant.grade && tenant.grade !== 'partition' ? `, isolated by ${tenant.grade}` : ''
  const granted = `${tenant.pod}, ${gpus(tenant.milli)}, ${memory(tenant.mib)}, ${PHASES[tenant.phase]}`
  const whose = [tenant.user && `, of ${tenant.user}`, tenant.queue && ` in ${tenant.queue}`].filter(Boolean).join('')
  return granted + whose + apart + (use && `; measured: ${use}`)
}

/** The card in one sentence, for those who hear the map. */
export function deviceSentence({ node, gpu }: FoundPosition): string {
  const state = node.state === 'ready' ? '' : `, node ${node.state.replace('-', ' ')}`
  if (!gpu) return `${node.name}${state}, no GPUs`
  const who = gpu.tenants.map((tenant) => `${shortName(tenant.workload)} ${gpus(tenant.milli)}`).join(', ')
  return `${node.name}, ${gpu.id}${state}, ${gpuState(gpu)}${who && `: ${who}`}`
}

/** Below the device, and never beyond the sides of the map. */
function beside(box: Box, place: Props['place']): CSSProperties {
  const width = Math.min(WIDTH, place.width)
  const left = Math.max(0, Math.min(box.x + box.width / 2 - width / 2, place.width - width))
  return { left, width, top: box.y + box.height - place.top + 8 }
}
