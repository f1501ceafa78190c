// What the colours of the map mean: which of a few names a device, or a tenant's part of one, belongs to.
//
// In: the nodes, and what to colour by. Out: the names that get a colour, and the place of each thing among them.
// Never: colours. With more names than colours, the names that hold most get one, and the rest share the last.

import type { GpuUseView, GpuView, NodeFragmentsView, NodeView, ReservationView, TenantView } from '../api/views'

export const COLOUR_BY = {
  allocation: 'allocation',
  queue: 'queue',
  user: 'user',
  model: 'GPU model',
  mode: 'partition mode',
  use: 'how busy',
  health: 'health',
  reserved: 'reservation',
  stranded: 'stranded GPUs',
} as const
export type ColourBy = keyof typeof COLOUR_BY

export const MOST_NAMES = 6
const NOBODY = 'not known'
const WHOLE = 'not partitioned'

export interface Colouring {
  by: ColourBy
  names: readonly string[] // in the order of their colours
  hasOthers: boolean
  tenantName?: (tenant: TenantView) => string
  deviceName?: (gpu: GpuView, node: NodeView) => string // empty: none of them
  stranded?: ReadonlyMap<string, number> // by node: the part of its free GPUs, 0..1, that no request can use
}

interface Known {
  reservations: readonly ReservationView[]
  fragments: readonly NodeFragmentsView[]
  use: GpuUseView['nodes']
}

// In the order of their colours. A GPU that is held and does nothing is what people look for.
const USES = ['held, and does nothing', 'free', 'up to 25 % busy', '25 to 75 % busy', 'more than 75 % busy', 'use unknown'] as const
const HEALTHS = ['healthy', 'its node takes no work', 'its node is not ready', 'mode is changing', 'unhealthy'] as const
const IDLE_PERCENT = 1

export function colouring(by: ColourBy, nodes: readonly NodeView[], { reservations, fragments, use }: Known): Colouring {
  switch (by) {
    case 'queue':
      return byTenant(by, nodes, (tenant) => tenant.queue || NOBODY)
    case 'user':
      return byTenant(by, nodes, (tenant) => tenant.user || NOBODY)
    case 'model':
      return byDevice(by, nodes, (gpu) => gpu.model)
    case 'mode':
      return byDevice(by, nodes, (gpu) => gpu.profile || WHOLE)
    case 'use':
      return { by, names: USES, hasOthers: false, deviceName: (gpu) => useOf(gpu, use[gpu.node]?.[gpu.index] ?? null) }
    case 'health':
      return { by, names: HEALTHS, hasOthers: false, deviceName: healthOf }
    case 'reserved':
      return byDevice(by, nodes, reservationOf(reservations))
    case 'stranded':
      return { by, names: [], hasOthers: false, stranded: new Map(fragments.map((each) => [each.node, part(each)])) }
    default:
      return { by, names: [], hasOthers: false }
  }
}

/** The colour of a name: its place, or that of the others. */
export function placeOf(colours: Colouring, name: string): number {
  const place = colours.names.indexOf(name)
  return place < 0 ? MOST_NAMES : place
}

function byTenant(by: ColourBy, nodes: readonly NodeView[], name: (tenant: TenantView) => string): Colouring {
  const held = new Map<string, number>()
  for (const node of nodes)
    for (const gpu of node.gpus)
      for (const tenant of gpu.tenants) held.set(name(tenant), (held.get(name(tenant)) ?? 0) + tenant.milli)
  return { by, ...largest(held), tenantName: name }
}

function byDevice(by: ColourBy, nodes: readonly NodeView[], name: (gpu: GpuView) => string): Colouring {
  const held = new Map<string, number>()
  for (const node of nodes)
    for (const gpu of node.gpus) if (name(gpu)) held.set(name(gpu), (held.get(name(gpu)) ?? 0) + 1)
  return { by, ...largest(held), deviceName: name }
}

/** In the order of their names, so that a colour does not change hands when amounts do. */
function largest(held: ReadonlyMap<string, number>): { names: string[]; hasOthers: boolean } {
  const ranked = [...held].sort(([a, much], [b, more]) => more - much || a.localeCompare(b)).map(([name]) => name)
  return { names: ranked.slice(0, MOST_NAMES).sort((a, b) => a.localeCompare(b)), hasOthers: ranked.length > MOST_NAMES }
}

function useOf(gpu: GpuView, busy_percent: number | null): (typeof USES)[number] {
  if (busy_percent === null) return gpu.tenants.length ? 'use unknown' : 'free'
  if (busy_percent < IDLE_PERCENT) return gpu.tenants.length ? 'held, and does nothing' : 'free'
  return busy_percent <= 25 ? 'up to 25 % busy' : busy_percent <= 75 ? '25 to 75 % busy' : 'more than 75 % busy'
}

function healthOf(gpu: GpuView, { state }: NodeView): (typeof HEALTHS)[number] {
  if (gpu.change) return 'mode is changing'
  if (!gpu.healthy) return 'unhealthy'
  return state === 'not-ready' ? 'its node is not ready' : state === 'cordoned' ? 'its node takes no work' : 'healthy'
}

function reservationOf(reservations: readonly ReservationView[]): (gpu: GpuView) => string {
  const owners = new Map<string, string>()
  for (const each of reservations) {
    if (each.phase === 'expired') continue
    for (const device of each.devices) owners.set(`${device.node}/${device.gpu}`, each.name)
  }
  return (gpu) => owners.get(`${gpu.node}/${gpu.id}`) ?? (gpu.parent ? (owners.get(`${gpu.node}/${gpu.parent}`) ?? '') : '')
}

const part = (node: NodeFragmentsView) => (node.free_gpu_milli > 0 ? Math.min(1, node.stranded_milli / node.free_gpu_milli) : 0)
