// Words about nodes: what may be done to one, and whose work draining stops.

import type { NodeVerb } from '../api/client'
import type { NodeView } from '../api/views'
import { gpus } from '../words/amounts'
import { shortName } from '../words/work'

/** Nothing that the server would refuse this person. */
export function verbsOfNode(state: string, rights: readonly string[]): NodeVerb[] {
  if (!rights.includes('operate')) return []
  return state === 'cordoned' ? ['uncordon', 'drain'] : ['cordon', 'drain']
}

/** `train of ada (8 GPUs)`: each workload on the node's GPUs once. */
export function drainWords(node: NodeView): string[] {
  const held = new Map<string, { user: string; milli: number }>()
  for (const tenant of node.gpus.flatMap((gpu) => gpu.tenants)) {
    const before = held.get(tenant.workload)?.milli ?? 0
    held.set(tenant.workload, { user: tenant.user, milli: before + tenant.milli })
  }
  return [...held]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([name, { user, milli }]) => `${shortName(name)}${user && ` of ${user}`} (${gpus(milli)})`)
}
