// Positions on the map: what is under the pointer, and where the arrow keys lead.
//
// A position names a node and one of its devices, so it outlives the layout.

import type { GpuView, NodeView } from '../api/views'
import type { Box, Layout, Tile } from './layout'

/** A node without devices, or its name, has `gpu` -1. */
export interface MapPosition {
  node: string
  gpu: number
}

export type Direction = 'left' | 'right' | 'up' | 'down' | 'first' | 'last'

export interface FoundPosition {
  node: NodeView
  gpu: GpuView | null
  box: Box
}

const inside = (box: Box, x: number, y: number) =>
  x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height

export function positionAt(layout: Layout, x: number, y: number): MapPosition | null {
  for (const block of layout.blocks) {
    if (!inside(block, x, y)) continue
    const tile = block.tiles.find((candidate) => inside(candidate, x, y))
    if (!tile) return null
    const reach = layout.size.cellGap / 2 // the gaps belong to the cells, so that the pointer never falls between two
    const gpu = tile.cells.findIndex((cell) => inside(grown(cell, reach), x, y))
    return { node: tile.node.name, gpu }
  }
  return null
}

const grown = (box: Box, by: number): Box => ({
  x: box.x - by,
  y: box.y - by,
  width: box.width + 2 * by,
  height: box.height + 2 * by,
})

/** What a position shows now; null when the node is gone. */
export function findPosition(layout: Layout, position: MapPosition | null): FoundPosition | null {
  if (!position) return null
  for (const block of layout.blocks) {
    const tile = block.tiles.find((candidate) => candidate.node.name === position.node)
    if (tile) return { node: tile.node, gpu: tile.node.gpus[position.gpu] ?? null, box: tile.cells[position.gpu] ?? tile }
  }
  return null
}

/** The next device in a direction; it stays where it is at the edge. */
export function nextPosition(layout: Layout, from: MapPosition | null, direction: Direction): MapPosition | null {
  const stops = layout.blocks.flatMap((block) => block.tiles.flatMap(stopsOf))
  if (direction === 'first' || !from) return positionOf(stops[0])
  if (direction === 'last') return positionOf(stops.at(-1))
  const index = Math.max(0, stops.findIndex((stop) => stop.node === from.node && (stop.gpu === from.gpu || from.gpu < 0)))
  if (direction === 'left') return positionOf(stops[Math.max(0, index - 1)])
  if (direction === 'right') return positionOf(stops[Math.min(stops.length - 1, index + 1)])
  return positionOf(nearest(stops, stops[index], direction === 'down' ? 1 : -1)) ?? from
}

interface Stop extends MapPosition {
  box: Box
}

const positionOf = (stop: Stop | undefined): MapPosition | null => (stop ? { node: stop.node, gpu: stop.gpu } : null)

function stopsOf(tile: Tile): Stop[] {
  if (!tile.cells.length) return [{ node: tile.node.name, gpu: -1, box: tile }]
  return tile.cells.map((box, gpu) => ({ node: tile.node.name, gpu, box }))
}

/** The closest row above or below, and in it the closest device. */
function nearest(stops: Stop[], from: Stop | undefined, sign: 1 | -1): Stop | undefined {
  if (!from) return undefined
  const middle = from.box.x + from.box.width / 2
  let best: Stop | undefined
  let bestFar = Infinity
  for (const stop of stops) {
    const down = (stop.box.y - from.box.y) * sign
    if (down <= 0) continue
    const far = down * 1000 + Math.abs(stop.box.x + stop.box.width / 2 - middle)
    if (far < bestFar) [best, bestFar] = [stop, far]
  }
  return best
}

/** How much of a device each tenant holds, 0..1: the larger of its share of the time and of the memory. */
export function parts(gpu: GpuView): number[] {
  let left = 1
  return gpu.tenants.map((tenant) => {
    const wants = Math.max(tenant.milli / 1000, gpu.memory_mib > 0 ? tenant.mib / gpu.memory_mib : 0)
    const part = Math.min(left, wants)
    left -= part
    return part
  })
}

/** The word for a device, as `kaiwo gpus` says it. */
export function gpuState(gpu: GpuView): 'draining' | 'changing' | 'unhealthy' | 'free' | 'shared' | 'full' {
  if (gpu.change === 'draining' || gpu.change === 'changing') return gpu.change
  if (!gpu.healthy) return 'unhealthy'
  if (!gpu.tenants.length) return 'free'
  return gpu.free_milli > 0 && gpu.free_mib > 0 ? 'shared' : 'full'
}
