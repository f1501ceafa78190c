// Which nodes a search on the map means.

import type { NodeView } from '../api/views'

/** Every word must be in the node's name, state or labels, or in the names of its work, users and queues. */
export function matches(node: NodeView, search: string): boolean {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  if (!words.length) return true
  const known = [node.name, node.state, ...Object.entries(node.labels).map(([key, value]) => `${key}=${value}`)]
  for (const gpu of node.gpus) {
    known.push(gpu.model)
    for (const tenant of gpu.tenants) known.push(tenant.workload, tenant.user, tenant.queue)
  }
  const text = known.join('\n').toLowerCase()
  return words.every((word) => text.includes(word))
}
