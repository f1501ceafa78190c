// Draw the map on a canvas.
//
// In: a layout, the part of it that is in view, and what to emphasise. Out: pixels. Never: reads the page or the clock.
// Where only the work on some nodes changed since the last picture, only their tiles are drawn again.
// Nothing is shown by colour alone: free space that cannot be used is hatched, a broken device is crossed out, what is
// about to start is ruled, a device with several tenants is divided, and a chosen workload is framed.

import type { GpuView, NodeView } from '../api/views'
import { gpuNumber } from '../words/amounts'
import { type Colouring, placeOf } from './colouring'
import type { Block, Box, Layout, Size, Tile } from './layout'
import { type MapPosition, parts } from './positions'

export interface Palette {
  surface: string
  tile: string
  line: string
  track: string
  text: string
  muted: string
  accent: string
  coming: string // about to start
  warn: string
  danger: string
  hatch: string
  names: readonly string[] // by place in a Colouring; the last is that of all others
  font: string
}

export interface Scene {
  layout: Layout
  top: number // first visible pixel
  width: number
  height: number
  chosen: ReadonlySet<string> // workloads to bring out
  colours: Colouring
  found: ReadonlySet<string> | null // names of nodes; the others are faint. null: nothing is searched for
  cursor: MapPosition | null
}

type CanvasContext = CanvasRenderingContext2D

/** `before`: what the canvas shows; null: nothing that can be kept. */
export function paint(context: CanvasContext, scene: Scene, palette: Palette, before: Scene | null = null): void {
  const kept = before && differOnlyInNodes(before, scene) ? before.layout.blocks : null
  if (!kept) context.clearRect(0, 0, scene.width, scene.height)
  context.save()
  context.translate(0, -scene.top)
  if (!kept) for (const { name, y } of scene.layout.headings) paintSpine(context, name, y, palette)
  for (const [index, block] of scene.layout.blocks.entries()) {
    const shown = kept?.[index]
    if (shown === block || !isInView(block, scene)) continue
    if (block.name) paintHeading(context, block, scene.layout.size, palette, shown !== undefined)
    for (const [place, tile] of block.tiles.entries()) {
      if (shown?.tiles[place] === tile || !isInView(tile, scene)) continue
      if (shown) context.clearRect(tile.x - 2, tile.y - 2, tile.width + 4, tile.height + 4) // with the frames around it
      paintTile(context, tile, scene, palette)
    }
  }
  context.restore()
}

/** `withNodes` keeps the rectangles, and the blocks and tiles in which nothing changed. */
function differOnlyInNodes(before: Scene, now: Scene): boolean {
  const { layout, ...rest } = now
  const isSameView = (Object.keys(rest) as (keyof typeof rest)[]).every((name) => before[name] === now[name])
  return isSameView && before.layout.size === layout.size && before.layout.rectangles === layout.rectangles
}

const isInView = (box: Box, scene: Scene) => box.y + box.height >= scene.top && box.y <= scene.top + scene.height

function paintSpine(context: CanvasContext, name: string, y: number, palette: Palette): void {
  context.textBaseline = 'middle'
  context.font = `600 12px ${palette.font}`
  context.fillStyle = palette.muted
  context.fillText(name, 0, y + 9)
}

function paintHeading(context: CanvasContext, block: Block, size: Size, palette: Palette, isAgain: boolean): void {
  const { margin } = size
  const middle = block.y + (margin ? (block.tiles[0]?.height ?? 0) / 2 : 7)
  if (isAgain && margin) return // beside its nodes a leaf has only its name
  if (isAgain) context.clearRect(block.x, middle - 8, block.width, 16)
  context.textBaseline = 'middle'
  context.font = `600 ${size.label}px ${palette.font}`
  const name = fitted(context, block.label, margin ? margin - 4 : block.width)
  context.fillStyle = palette.text
  context.fillText(name, block.x, middle)
  const after = block.x + context.measureText(name).width + 8
  const amount = leafAmount(block)
  context.font = `12px ${palette.font}`
  if (margin || after + context.measureText(amount).width > block.x + block.width) return
  context.fillStyle = palette.muted
  context.fillText(amount, after, middle)
}

function leafAmount(block: Block): string {
  const used = block.tiles.reduce((sum, tile) => sum + tile.node.gpu_milli.used, 0)
  const total = block.tiles.reduce((sum, tile) => sum + tile.node.gpu_milli.total, 0)
  return `${gpuNumber(used)} of ${gpuNumber(total)} GPU`
}

function paintTile(context: CanvasContext, tile: Tile, scene: Scene, palette: Palette): void {
  const { node } = tile
  const { size } = scene.layout
  const isOut = node.state !== 'ready'
  const isFaint = scene.found !== null && !scene.found.has(node.name)
  context.fillStyle = palette.tile
  rounded(context, tile, size.title ? 6 : 3)
  context.fill()
  context.strokeStyle = node.state === 'not-ready' ? palette.danger : isOut ? palette.warn : palette.line
  context.setLineDash(isOut ? [4, 3] : [])
  context.lineWidth = 1
  context.stroke()
  context.setLineDash([])
  if (size.title) paintTitle(context, tile, scene, palette)
  if (!tile.cells.length) hatch(context, inset(tile, size.pad, size.title), palette.hatch)
  node.gpus.forEach((gpu, index) => {
    const cell = tile.cells[index]
    if (!cell) return
    const isChosen = gpu.tenants.some((tenant) => scene.chosen.has(tenant.workload))
    context.globalAlpha = isFaint || (scene.chosen.size && !isChosen) ? 0.28 : 1
    paintDevice(context, cell, gpu, node, scene.colours, palette)
    context.globalAlpha = 1
    if (isChosen) frame(context, cell, palette.text, cell.width < 10 ? 1 : 1.5, cell.width < 10 ? 0 : 0.5)
    if (scene.cursor?.node === node.name && scene.cursor.gpu === index) frame(context, cell, palette.accent, 2, 1.5)
  })
  if (scene.cursor?.node === node.name && scene.cursor.gpu < 0) frame(context, tile, palette.accent, 2, 1)
}

function paintTitle(context: CanvasContext, tile: Tile, scene: Scene, palette: Palette): void {
  const { node } = tile
  const { pad, title } = scene.layout.size
  const middle = tile.y + pad + title / 2 - 4
  const right = tile.x + tile.width - pad
  const amount = node.state === 'ready' ? nodeAmount(node) : node.state.replace('-', ' ')
  context.textBaseline = 'middle'
  context.font = `${title > 18 ? 12 : 11}px ${palette.font}`
  const amountWidth = context.measureText(amount).width
  const isOut = node.state !== 'ready'
  context.fillStyle = node.state === 'not-ready' ? palette.danger : isOut ? palette.warn : palette.muted
  context.fillText(amount, right - amountWidth, middle)
  if (isOut) noEntry(context, right - amountWidth - 10, middle, context.fillStyle)
  context.fillStyle = palette.text
  const room = tile.width - 2 * pad - amountWidth - (isOut ? 22 : 8)
  context.fillText(fitted(context, node.name, room), tile.x + pad, middle)
}

const nodeAmount = (node: NodeView) =>
  node.gpu_milli.total ? `${gpuNumber(node.gpu_milli.used)}/${gpuNumber(node.gpu_milli.total)}` : 'no GPUs'

function paintDevice(
  context: CanvasContext,
  cell: Box,
  gpu: GpuView,
  node: NodeView,
  colours: Colouring,
  palette: Palette,
): void {
  const isOut = node.state !== 'ready'
  const name = colours.deviceName?.(gpu, node) ?? ''
  context.fillStyle = name ? nameColour(colours, name, palette) : palette.track
  context.fillRect(cell.x, cell.y, cell.width, cell.height)
  if (isOut || !gpu.healthy) hatch(context, cell, gpu.healthy ? palette.hatch : palette.danger)
  if (!colours.deviceName) paintTenants(context, cell, gpu, colours, palette)
  if (!gpu.healthy) cross(context, cell, palette.danger)
}

function paintTenants(context: CanvasContext, cell: Box, gpu: GpuView, colours: Colouring, palette: Palette): void {
  let bottom = cell.y + cell.height
  parts(gpu).forEach((part, index) => {
    const tenant = gpu.tenants[index]
    const height = Math.max(part * cell.height, 1)
    const box = { x: cell.x, y: bottom - height, width: cell.width, height }
    const colour = tenant && colours.tenantName ? nameColour(colours, colours.tenantName(tenant), palette) : palette.accent
    paintTenant(context, box, tenant?.phase ?? 'running', colours.stranded ? palette.hatch : colour, palette)
    if (bottom < cell.y + cell.height) {
      context.fillStyle = palette.surface
      context.fillRect(cell.x, bottom - 0.75, cell.width, 1.5)
    }
    bottom -= height
  })
  const stranded = colours.stranded?.get(gpu.node) ?? 0
  const free = bottom - cell.y
  if (stranded > 0 && free > 0) {
    context.fillStyle = palette.warn
    context.fillRect(cell.x, cell.y, cell.width, Math.max(1, free * stranded))
  }
}

const nameColour = (colours: Colouring, name: string, palette: Palette) => palette.names[placeOf(colours, name)] ?? palette.accent

function paintTenant(context: CanvasContext, box: Box, phase: string, colour: string, palette: Palette): void {
  context.fillStyle = phase === 'assumed' ? palette.coming : colour
  context.fillRect(box.x, box.y, box.width, box.height)
  if (phase === 'releasing') hatch(context, box, palette.surface)
  if (phase !== 'assumed') return
  context.fillStyle = colour
  for (let y = box.y; y < box.y + box.height; y += 4) context.fillRect(box.x, y, box.width, 1)
}

/** Diagonal lines, clipped to the box. */
function hatch(context: CanvasContext, box: Box, colour: string): void {
  context.save()
  context.beginPath()
  context.rect(box.x, box.y, box.width, box.height)
  context.clip()
  context.beginPath()
  for (let x = box.x - box.height; x < box.x + box.width; x += 5) {
    context.moveTo(x, box.y + box.height)
    context.lineTo(x + box.height, box.y)
  }
  context.strokeStyle = colour
  context.lineWidth = 1
  context.stroke()
  context.restore()
}

function cross(context: CanvasContext, box: Box, colour: string): void {
  const arm = Math.min(box.width, box.height) / 2 - 1
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2]
  context.beginPath()
  context.moveTo(x - arm, y - arm)
  context.lineTo(x + arm, y + arm)
  context.moveTo(x + arm, y - arm)
  context.lineTo(x - arm, y + arm)
  context.strokeStyle = colour
  context.lineWidth = 2
  context.stroke()
}

function noEntry(context: CanvasContext, x: number, y: number, colour: string | CanvasGradient | CanvasPattern): void {
  context.beginPath()
  context.arc(x, y, 4.5, 0, 2 * Math.PI)
  context.moveTo(x - 3, y + 3)
  context.lineTo(x + 3, y - 3)
  context.strokeStyle = colour
  context.lineWidth = 1.3
  context.stroke()
}

function frame(context: CanvasContext, box: Box, colour: string, width: number, out: number): void {
  context.strokeStyle = colour
  context.lineWidth = width
  context.strokeRect(box.x - out, box.y - out, box.width + 2 * out, box.height + 2 * out)
}

const inset = (tile: Tile, pad: number, title: number): Box => ({
  x: tile.x + pad,
  y: tile.y + pad + title,
  width: tile.width - 2 * pad,
  height: tile.height - 2 * pad - title,
})

function rounded(context: CanvasContext, box: Box, radius: number): void {
  context.beginPath()
  context.roundRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, radius)
}

/** The text, or as much of it as there is room for. */
function fitted(context: CanvasContext, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text
  let length = Math.max(0, Math.floor((text.length * room) / context.measureText(text).width) - 1)
  while (length > 0 && context.measureText(`${text.slice(0, length)}…`).width > room) length--
  return length > 0 ? `${text.slice(0, length)}…` : ''
}
