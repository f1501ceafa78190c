// Draw the map on a canvas.
//
// In: a layout, the part of it that is in view, and what to emphasise. Out: pixels. Never: reads the page or the clock.
// Nothing is told by colour alone: free space that cannot be used is hatched, a broken device is crossed out, what is
// about to start is ruled, a device with several tenants is divided, and a chosen workload is framed.

import type { GpuView, NodeView } from '../api/views'
import { gpuNumber } from '../words/amounts'
import type { Block, Box, Layout, Tile } from './layout'
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
  font: string
}

export interface Scene {
  layout: Layout
  top: number // first visible pixel
  width: number
  height: number
  chosen: ReadonlySet<string> // workloads to bring out
  cursor: MapPosition | null
}

type Pen = CanvasRenderingContext2D

export function paint(pen: Pen, scene: Scene, palette: Palette): void {
  pen.clearRect(0, 0, scene.width, scene.height)
  pen.save()
  pen.translate(0, -scene.top)
  for (const block of scene.layout.blocks) {
    if (!isInView(block, scene)) continue
    if (block.name) paintHeading(pen, block, scene.layout.size.margin, palette)
    for (const tile of block.tiles) if (isInView(tile, scene)) paintTile(pen, tile, scene, palette)
  }
  pen.restore()
}

const isInView = (box: Box, scene: Scene) => box.y + box.height >= scene.top && box.y <= scene.top + scene.height

function paintHeading(pen: Pen, block: Block, margin: number, palette: Palette): void {
  const middle = block.y + (margin ? (block.tiles[0]?.height ?? 0) / 2 : 7)
  pen.textBaseline = 'middle'
  pen.font = `600 ${margin ? 11 : 12}px ${palette.font}`
  const name = fitted(pen, block.name, margin ? margin - 8 : block.width)
  pen.fillStyle = palette.text
  pen.fillText(name, block.x, middle)
  const after = block.x + pen.measureText(name).width + 8
  const amount = leafAmount(block)
  pen.font = `12px ${palette.font}`
  if (margin || after + pen.measureText(amount).width > block.x + block.width) return
  pen.fillStyle = palette.muted
  pen.fillText(amount, after, middle)
}

function leafAmount(block: Block): string {
  const used = block.tiles.reduce((sum, tile) => sum + tile.node.gpu_milli.used, 0)
  const total = block.tiles.reduce((sum, tile) => sum + tile.node.gpu_milli.total, 0)
  return `${gpuNumber(used)} of ${gpuNumber(total)} GPU`
}

function paintTile(pen: Pen, tile: Tile, scene: Scene, palette: Palette): void {
  const { node } = tile
  const { size } = scene.layout
  const isOut = node.state !== 'ready'
  pen.fillStyle = palette.tile
  rounded(pen, tile, size.title ? 6 : 3)
  pen.fill()
  pen.strokeStyle = node.state === 'not-ready' ? palette.danger : isOut ? palette.warn : palette.line
  pen.setLineDash(isOut ? [4, 3] : [])
  pen.lineWidth = 1
  pen.stroke()
  pen.setLineDash([])
  if (size.title) paintTitle(pen, tile, scene, palette)
  if (!tile.cells.length) hatch(pen, inset(tile, size.pad, size.title), palette.hatch)
  node.gpus.forEach((gpu, index) => {
    const cell = tile.cells[index]
    if (!cell) return
    const isChosen = gpu.tenants.some((tenant) => scene.chosen.has(tenant.workload))
    pen.globalAlpha = scene.chosen.size && !isChosen ? 0.28 : 1
    paintDevice(pen, cell, gpu, isOut, palette)
    pen.globalAlpha = 1
    if (isChosen) frame(pen, cell, palette.text, cell.width < 10 ? 1 : 1.5, cell.width < 10 ? 0 : 0.5)
    if (scene.cursor?.node === node.name && scene.cursor.gpu === index) frame(pen, cell, palette.accent, 2, 1.5)
  })
  if (scene.cursor?.node === node.name && scene.cursor.gpu < 0) frame(pen, tile, palette.accent, 2, 1)
}

function paintTitle(pen: Pen, tile: Tile, scene: Scene, palette: Palette): void {
  const { node } = tile
  const { pad, title } = scene.layout.size
  const middle = tile.y + pad + title / 2 - 4
  const right = tile.x + tile.width - pad
  const amount = node.state === 'ready' ? nodeAmount(node) : node.state.replace('-', ' ')
  pen.textBaseline = 'middle'
  pen.font = `${title > 18 ? 12 : 11}px ${palette.font}`
  const amountWidth = pen.measureText(amount).width
  const isOut = node.state !== 'ready'
  pen.fillStyle = node.state === 'not-ready' ? palette.danger : isOut ? palette.warn : palette.muted
  pen.fillText(amount, right - amountWidth, middle)
  if (isOut) noEntry(pen, right - amountWidth - 10, middle, pen.fillStyle)
  pen.fillStyle = palette.text
  const room = tile.width - 2 * pad - amountWidth - (isOut ? 22 : 8)
  pen.fillText(fitted(pen, node.name, room), tile.x + pad, middle)
}

const nodeAmount = (node: NodeView) =>
  node.gpu_milli.total ? `${gpuNumber(node.gpu_milli.used)}/${gpuNumber(node.gpu_milli.total)}` : 'no GPUs'

function paintDevice(pen: Pen, cell: Box, gpu: GpuView, isOut: boolean, palette: Palette): void {
  pen.fillStyle = palette.track
  pen.fillRect(cell.x, cell.y, cell.width, cell.height)
  if (isOut || !gpu.healthy) hatch(pen, cell, gpu.healthy ? palette.hatch : palette.danger)
  let bottom = cell.y + cell.height
  parts(gpu).forEach((part, index) => {
    const height = Math.max(part * cell.height, 1)
    const box = { x: cell.x, y: bottom - height, width: cell.width, height }
    paintTenant(pen, box, gpu.tenants[index]?.phase ?? 'running', palette)
    if (bottom < cell.y + cell.height) {
      pen.fillStyle = palette.surface
      pen.fillRect(cell.x, bottom - 0.75, cell.width, 1.5)
    }
    bottom -= height
  })
  if (!gpu.healthy) cross(pen, cell, palette.danger)
}

function paintTenant(pen: Pen, box: Box, phase: string, palette: Palette): void {
  pen.fillStyle = phase === 'assumed' ? palette.coming : palette.accent
  pen.fillRect(box.x, box.y, box.width, box.height)
  if (phase === 'releasing') hatch(pen, box, palette.surface)
  if (phase !== 'assumed') return
  pen.fillStyle = palette.accent
  for (let y = box.y; y < box.y + box.height; y += 4) pen.fillRect(box.x, y, box.width, 1)
}

/** Diagonal lines, clipped to the box. */
function hatch(pen: Pen, box: Box, colour: string): void {
  pen.save()
  pen.beginPath()
  pen.rect(box.x, box.y, box.width, box.height)
  pen.clip()
  pen.beginPath()
  for (let x = box.x - box.height; x < box.x + box.width; x += 5) {
    pen.moveTo(x, box.y + box.height)
    pen.lineTo(x + box.height, box.y)
  }
  pen.strokeStyle = colour
  pen.lineWidth = 1
  pen.stroke()
  pen.restore()
}

function cross(pen: Pen, box: Box, colour: string): void {
  const arm = Math.min(box.width, box.height) / 2 - 1
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2]
  pen.beginPath()
  pen.moveTo(x - arm, y - arm)
  pen.lineTo(x + arm, y + arm)
  pen.moveTo(x + arm, y - arm)
  pen.lineTo(x - arm, y + arm)
  pen.strokeStyle = colour
  pen.lineWidth = 2
  pen.stroke()
}

function noEntry(pen: Pen, x: number, y: number, colour: string | CanvasGradient | CanvasPattern): void {
  pen.beginPath()
  pen.arc(x, y, 4.5, 0, 2 * Math.PI)
  pen.moveTo(x - 3, y + 3)
  pen.lineTo(x + 3, y - 3)
  pen.strokeStyle = colour
  pen.lineWidth = 1.3
  pen.stroke()
}

function frame(pen: Pen, box: Box, colour: string, width: number, out: number): void {
  pen.strokeStyle = colour
  pen.lineWidth = width
  pen.strokeRect(box.x - out, box.y - out, box.width + 2 * out, box.height + 2 * out)
}

const inset = (tile: Tile, pad: number, title: number): Box => ({
  x: tile.x + pad,
  y: tile.y + pad + title,
  width: tile.width - 2 * pad,
  height: tile.height - 2 * pad - title,
})

function rounded(pen: Pen, box: Box, radius: number): void {
  pen.beginPath()
  pen.roundRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, radius)
}

/** The text, or as much of it as there is room for. */
function fitted(pen: Pen, text: string, room: number): string {
  if (pen.measureText(text).width <= room) return text
  let length = Math.max(0, Math.floor((text.length * room) / pen.measureText(text).width) - 1)
  while (length > 0 && pen.measureText(`${text.slice(0, length)}…`).width > room) length--
  return length > 0 ? `${text.slice(0, length)}…` : ''
}
