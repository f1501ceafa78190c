// Where every node and device lies on the map.
//
// In: nodes, the width there is, and the height that would be nice. Out: rectangles in pixels.
// Never: draws. The largest size at which everything fits the height is chosen, else the smallest, and the map scrolls.

import type { NodeView } from '../api/views'

export const LEAF_LABEL = 'topology.kaiwo.ai/leaf'

export interface Box {
  x: number
  y: number
  width: number
  height: number
}

export interface Tile extends Box {
  node: NodeView
  cells: Box[] // one a device, in the order of node.gpus
}

export interface Block extends Box {
  name: string // the leaf; empty when there is only one group and it has no name
  tiles: Tile[]
}

export interface Size {
  cellWidth: number
  cellHeight: number
  cellGap: number
  title: number // height of the node's name; 0: none is shown
  pad: number
  gap: number // between tiles
  margin: number // room for the leaf's name at the left of its nodes; 0: it stands above them
}

export interface Layout {
  rectangles: object // the same one while only what is on the nodes changes
  blocks: Block[]
  height: number
  size: Size
}

const SIZES: Size[] = [
  { cellWidth: 20, cellHeight: 44, cellGap: 3, title: 20, pad: 8, gap: 10, margin: 0 },
  { cellWidth: 13, cellHeight: 26, cellGap: 2, title: 16, pad: 6, gap: 8, margin: 0 },
  { cellWidth: 7, cellHeight: 16, cellGap: 1, title: 0, pad: 4, gap: 6, margin: 64 },
  { cellWidth: 4, cellHeight: 10, cellGap: 1, title: 0, pad: 3, gap: 4, margin: 64 },
]
const BLOCK_TITLE = 20
const BLOCK_GAP = 16 // between leaves side by side, and below those whose name stands above
const MOST_STRETCH = 1.6 // how much wider than its size says a cell may become to fill the row

/** `zoom`: so many sizes larger than what fits, or smaller if it is negative. */
export function layOut(nodes: readonly NodeView[], width: number, niceHeight: number, zoom = 0): Layout {
  const groups = byLeaf(nodes)
  let layout = place(groups, width, SIZES[0]!)
  let fit = 0
  while (layout.height > niceHeight && fit < SIZES.length - 1) layout = place(groups, width, SIZES[++fit]!)
  const wanted = Math.min(SIZES.length - 1, Math.max(0, fit - zoom))
  return wanted === fit ? layout : place(groups, width, SIZES[wanted]!)
}

/** The same rectangles with what the nodes are now; null where nodes came, went, moved, or have other devices.
 *
 * A thousand nodes are laid out in many milliseconds, and four times a second some of them have other work.
 */
export function withNodes(layout: Layout, before: readonly NodeView[], nodes: readonly NodeView[]): Layout | null {
  if (before.length !== nodes.length) return null
  const changed = new Map<string, NodeView>()
  for (const [index, node] of nodes.entries()) {
    const was = before[index]!
    if (was === node) continue
    const isSame = was.name === node.name && was.gpus.length === node.gpus.length && was.labels[LEAF_LABEL] === node.labels[LEAF_LABEL]
    if (!isSame) return null
    changed.set(node.name, node)
  }
  if (!changed.size) return layout
  const blocks = layout.blocks.map((block) =>
    block.tiles.some((tile) => changed.has(tile.node.name))
      ? { ...block, tiles: block.tiles.map((tile) => (changed.has(tile.node.name) ? { ...tile, node: changed.get(tile.node.name)! } : tile)) }
      : block,
  )
  return { ...layout, blocks }
}

/** Leaves and the nodes of each, both in the order a person would count them. */
export function byLeaf(nodes: readonly NodeView[]): [string, NodeView[]][] {
  const groups = new Map<string, NodeView[]>()
  for (const node of nodes) {
    const leaf = node.labels[LEAF_LABEL] ?? ''
    const group = groups.get(leaf)
    if (group) group.push(node)
    else groups.set(leaf, [node])
  }
  for (const group of groups.values()) group.sort((a, b) => compareNaturally(a.name, b.name))
  return [...groups].sort(([a], [b]) => (a === '' ? 1 : b === '' ? -1 : compareNaturally(a, b)))
}

const COLLATOR = new Intl.Collator('en', { numeric: true })
export const compareNaturally = (a: string, b: string) => COLLATOR.compare(a, b)

function place(groups: [string, NodeView[]][], width: number, size: Size): Layout {
  const isNamed = groups.length > 1 || (groups[0]?.[0] ?? '') !== ''
  const margin = isNamed ? size.margin : 0
  const title = isNamed && !size.margin ? BLOCK_TITLE : 0
  const columns = cellColumns(groups)
  const largest = groups.reduce((most, [, nodes]) => Math.max(most, nodes.length), 1)
  const { tileWidth, perRow } = fitTiles(columns, largest, size, width, margin)
  const blocks: Block[] = []
  let [x, y, rowHeight] = [0, 0, 0]
  for (const [name, nodes] of groups) {
    const across = Math.min(nodes.length, perRow)
    const blockWidth = margin + across * (tileWidth + size.gap) - size.gap
    if (x > 0 && x + blockWidth > width + 0.5) {
      y += rowHeight + (title ? BLOCK_GAP : size.gap)
      ;[x, rowHeight] = [0, 0]
    }
    const tiles = placeTiles(nodes, { x: x + margin, y: y + title, across, columns, tileWidth, size })
    const last = Math.max(...tiles.map((tile) => tile.y + tile.height))
    blocks.push({ name: isNamed ? name || 'no leaf' : '', tiles, x, y, width: blockWidth, height: last - y })
    rowHeight = Math.max(rowHeight, last - y)
    x += blockWidth + BLOCK_GAP
  }
  return { rectangles: {}, blocks, height: blocks.length ? y + rowHeight : 0, size }
}

/** Devices side by side in one tile. Eight are one row; a node cut into many partitions gets wider rows. */
function cellColumns(groups: [string, NodeView[]][]): number {
  const most = groups.reduce((max, [, nodes]) => nodes.reduce((m, node) => Math.max(m, node.gpus.length), max), 1)
  return most > 16 ? 16 : Math.max(4, Math.min(most, 8))
}

/** Tiles as wide as fills the row: whole leaves side by side where they fit, else one leaf over several rows. */
function fitTiles(columns: number, largest: number, size: Size, width: number, margin: number) {
  const bare = 2 * size.pad + (columns - 1) * size.cellGap
  const least = bare + columns * size.cellWidth
  const most = bare + columns * size.cellWidth * MOST_STRETCH
  const fit = Math.max(1, Math.floor((width - margin + size.gap) / (least + size.gap)))
  const leafWidth = margin + largest * (least + size.gap) - size.gap
  const leaves = Math.max(1, Math.floor((width + BLOCK_GAP) / (leafWidth + BLOCK_GAP)))
  const perRow = Math.min(fit, largest)
  const room = (width - (leaves - 1) * BLOCK_GAP) / leaves - margin
  return { tileWidth: Math.min((room - (perRow - 1) * size.gap) / perRow, most), perRow }
}

interface Row {
  x: number
  y: number
  across: number
  columns: number
  tileWidth: number
  size: Size
}

function placeTiles(nodes: NodeView[], row: Row): Tile[] {
  const { columns, size, tileWidth } = row
  const cellWidth = (tileWidth - 2 * size.pad - (columns - 1) * size.cellGap) / columns
  const tiles: Tile[] = []
  let y = row.y
  for (let first = 0; first < nodes.length; first += row.across) {
    const inRow = nodes.slice(first, first + row.across)
    const cellRows = Math.max(1, ...inRow.map((node) => Math.ceil(node.gpus.length / columns)))
    const height = 2 * size.pad + size.title + cellRows * (size.cellHeight + size.cellGap) - size.cellGap
    inRow.forEach((node, index) => {
      const x = row.x + index * (tileWidth + size.gap)
      const cells = node.gpus.map((_, cell) => ({
        x: x + size.pad + (cell % columns) * (cellWidth + size.cellGap),
        y: y + size.pad + size.title + Math.floor(cell / columns) * (size.cellHeight + size.cellGap),
        width: cellWidth,
        height: size.cellHeight,
      }))
      tiles.push({ node, x, y, width: tileWidth, height, cells })
    })
    y += height + size.gap
  }
  return tiles
}
