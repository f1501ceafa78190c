// Where every node and device lies on the map.
//
// In: nodes, the width there is, and the height that would be nice. Out: rectangles in pixels.
// Never: draws. The largest size at which everything fits the height is chosen, else the smallest, and the map scrolls.

import type { NodeView } from '../api/views'
import { compareNaturally } from '../words/order'

export const LEAF_LABEL = 'topology.kaiwo.ai/leaf'
export const SPINE_LABEL = 'topology.kaiwo.ai/spine'

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
  label: string // its name, or where there is little room the part in which it differs from the others
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
  label: number // size of the leaf's name
}

/** The name of a spine, above its leaves. */
export interface Heading {
  name: string
  y: number
}

export interface Layout {
  rectangles: object // the same one while only what is on the nodes changes
  headings: Heading[] // none where there is only one spine
  blocks: Block[]
  height: number
  size: Size
}

const SIZES: Size[] = [
  { cellWidth: 20, cellHeight: 44, cellGap: 3, title: 20, pad: 8, gap: 10, margin: 0, label: 12 },
  { cellWidth: 13, cellHeight: 26, cellGap: 2, title: 16, pad: 6, gap: 8, margin: 0, label: 12 },
  { cellWidth: 7, cellHeight: 16, cellGap: 1, title: 0, pad: 4, gap: 6, margin: 64, label: 11 },
  { cellWidth: 4, cellHeight: 10, cellGap: 1, title: 0, pad: 3, gap: 4, margin: 64, label: 11 },
  { cellWidth: 3, cellHeight: 5, cellGap: 1, title: 0, pad: 2, gap: 2, margin: 28, label: 9 },
]
const HEADING = 20
const BLOCK_TITLE = 20
const BLOCK_GAP = 16 // between leaves side by side, and below those whose name stands above
const DENSE_GAP = 8 // the same where leaves have their names at the left
const MOST_ROWS = 4 // of one leaf
const NARROW = 40 // a margin in which whole names have no room
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
    const isSame = was.name === node.name && was.gpus.length === node.gpus.length && isAt(was, node)
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

const isAt = (a: NodeView, b: NodeView) => [LEAF_LABEL, SPINE_LABEL].every((label) => a.labels[label] === b.labels[label])

export interface Leaf {
  spine: string
  name: string
  nodes: NodeView[]
}

/** Leaves and the nodes of each, spine by spine, in the order a person would count them. */
export function byLeaf(nodes: readonly NodeView[]): Leaf[] {
  const found = new Map<string, Leaf>()
  for (const node of nodes) {
    const [spine, name] = [node.labels[SPINE_LABEL] ?? '', node.labels[LEAF_LABEL] ?? '']
    const leaf = found.get(`${spine} ${name}`)
    if (leaf) leaf.nodes.push(node)
    else found.set(`${spine} ${name}`, { spine, name, nodes: [node] })
  }
  for (const leaf of found.values()) leaf.nodes.sort((a, b) => compareNaturally(a.name, b.name))
  return [...found.values()].sort((a, b) => namedFirst(a.spine, b.spine) || namedFirst(a.name, b.name))
}

const namedFirst = (a: string, b: string) => (a === b ? 0 : a === '' ? 1 : b === '' ? -1 : compareNaturally(a, b))

function place(leaves: Leaf[], width: number, size: Size): Layout {
  const isNamed = leaves.length > 1 || (leaves[0]?.name ?? '') !== ''
  const hasSpines = leaves.some((leaf) => leaf.spine !== leaves[0]?.spine)
  const margin = isNamed ? size.margin : 0
  const title = isNamed && !size.margin ? BLOCK_TITLE : 0
  const between = size.margin ? DENSE_GAP : BLOCK_GAP
  const columns = cellColumns(leaves)
  const { tileWidth, perRow } = fitTiles(columns, leaves, size, width, margin, between)
  const shared = size.margin && size.margin < NARROW ? sharedBeginning(leaves) : 0
  const blocks: Block[] = []
  const headings: Heading[] = []
  let [x, y, rowHeight] = [0, 0, 0]
  const nextRow = () => {
    if (rowHeight) y += rowHeight + (title ? BLOCK_GAP : size.gap)
    ;[x, rowHeight] = [0, 0]
  }
  for (const [index, { spine, name, nodes }] of leaves.entries()) {
    const across = Math.min(nodes.length, perRow)
    const blockWidth = margin + across * (tileWidth + size.gap) - size.gap
    if (hasSpines && (index === 0 || spine !== leaves[index - 1]?.spine)) {
      nextRow()
      headings.push({ name: spine || 'no spine', y })
      y += HEADING
    } else if (x > 0 && x + blockWidth > width + 0.5) nextRow()
    const tiles = placeTiles(nodes, { x: x + margin, y: y + title, across, columns, tileWidth, size })
    const last = Math.max(...tiles.map((tile) => tile.y + tile.height))
    const label = name.slice(shared) || name || 'none'
    blocks.push({ name: isNamed ? name || 'no leaf' : '', label: shared ? label : name || 'no leaf', tiles, x, y, width: blockWidth, height: last - y })
    rowHeight = Math.max(rowHeight, last - y)
    x += blockWidth + between
  }
  return { rectangles: {}, headings, blocks, height: blocks.length ? y + rowHeight : 0, size }
}

/** How many letters all names begin with; digits are kept together, so that leaf-10 and leaf-19 are 10 and 19. */
function sharedBeginning(leaves: readonly Leaf[]): number {
  const names = leaves.map((leaf) => leaf.name).filter(Boolean)
  const first = names[0] ?? ''
  let length = 0
  while (length < first.length && names.every((name) => name[length] === first[length])) length++
  while (length > 0 && /\d/.test(first[length - 1] ?? '')) length--
  return length
}

/** Devices side by side in one tile. Eight are one row; a node cut into many partitions gets wider rows. */
function cellColumns(leaves: Leaf[]): number {
  const most = leaves.reduce((max, { nodes }) => nodes.reduce((m, node) => Math.max(m, node.gpus.length), max), 1)
  return most > 16 ? 16 : Math.max(4, Math.min(most, 8))
}

/** Tiles as wide as fills the row: whole leaves side by side where they fit, else one leaf over several rows. */
function fitTiles(columns: number, leaves: Leaf[], size: Size, width: number, margin: number, between: number) {
  const bare = 2 * size.pad + (columns - 1) * size.cellGap
  const least = bare + columns * size.cellWidth
  const most = bare + columns * size.cellWidth * MOST_STRETCH
  const largest = leaves.reduce((max, { nodes }) => Math.max(max, nodes.length), 1)
  const fit = Math.max(1, Math.floor((width - margin + size.gap) / (least + size.gap)))
  const leafWidth = (across: number) => margin + across * (least + size.gap) - size.gap
  const leavesIn = (across: number) => Math.max(1, Math.floor((width + between) / (leafWidth(across) + between)))
  const rowsWith = (across: number) => Math.ceil(leaves.length / leavesIn(across)) * Math.ceil(largest / across)
  let perRow = Math.min(fit, largest)
  for (let rows = 2; margin && rows <= MOST_ROWS; rows++) {
    const across = Math.min(fit, Math.ceil(largest / rows))
    if (rowsWith(across) < rowsWith(perRow)) perRow = across // narrow leaves leave less of the row empty
  }
  const beside = leavesIn(perRow)
  const room = (width - (beside - 1) * between) / beside - margin
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
