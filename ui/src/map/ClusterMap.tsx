// The cluster as a map: one tile per node, one cell per GPU, grouped by the leaf switch that the node's label names.
//
// The canvas is only as large as its window and is drawn again when something moves, so that a thousand nodes scroll
// as lightly as eight. Everything on it can be reached with the arrow keys.

import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from 'react'
import type { NodeView } from '../api/views'
import { useTheme } from '../page/theme'
import type { Colouring } from './colouring'
import { DeviceCard, deviceSentence } from './DeviceCard'
import { type Box, type Layout, layOut, withNodes } from './layout'
import { matches } from './matching'
import { type Palette, type Scene, paint } from './paint'
import { readPalette } from './palette'
import { type Direction, type MapPosition, findPosition, nextPosition, positionAt } from './positions'
import { useBox } from './useBox'

const NICE_HEIGHT = 430
const KEYS: Record<string, Direction> = {
  ArrowLeft: 'left',
  ArrowRight: 'right',
  ArrowUp: 'up',
  ArrowDown: 'down',
  Home: 'first',
  End: 'last',
}

interface Props {
  nodes: readonly NodeView[]
  chosen: string // the selected workload's name
  colours: Colouring
  search: string
  zoom: number
  onPick: (workload: string) => void
  onPickNode: (node: string) => void
}

export function ClusterMap({ nodes, chosen, colours, search, zoom, onPick, onPickNode }: Props) {
  const windowRef = useRef<HTMLDivElement>(null)
  const canvasRef = useRef<HTMLCanvasElement>(null)
  const [theme] = useTheme()
  const box = useBox(windowRef)
  const [top, setTop] = useState(0)
  const [hovered, setHovered] = useState<MapPosition | null>(null)
  const [pinned, setPinned] = useState<MapPosition | null>(null)
  const [hasFocus, setFocus] = useState(false)
  const layout = useLayout(nodes, box.width, zoom)
  const found = useFound(nodes, search)
  const palette = useRef<Palette | null>(null)
  const painted = useRef<{ scene: Scene; palette: Palette; pixels: string } | null>(null)

  const shown = findPosition(layout, pinned) ?? findPosition(layout, hovered)
  const isPlaced = useMemo(() => chosen !== '' && nodes.some((node) => hosts(node, chosen)), [nodes, chosen])
  const outlined = isPlaced ? chosen : (shown?.gpu?.tenants.map((tenant) => tenant.workload).join('\n') ?? '')
  const broughtOut = useMemo(() => new Set(outlined ? outlined.split('\n') : []), [outlined])

  // A workload that was just chosen, or just placed, is brought into the window; later moves leave the window alone.
  const newest = useRef(layout)
  newest.current = layout
  useEffect(() => {
    if (isPlaced) scrollTo(windowRef.current, tileOf(newest.current, chosen))
  }, [isPlaced, chosen])

  useEffect(() => {
    if (!search) return
    const first = newest.current.blocks.flatMap((block) => block.tiles).find((tile) => matches(tile.node, search))
    scrollTo(windowRef.current, first)
  }, [search])

  useEffect(() => {
    palette.current = windowRef.current && readPalette(windowRef.current)
  }, [theme])

  useEffect(() => {
    const frame = requestAnimationFrame(() => {
      const context = canvasRef.current && scaled(canvasRef.current, box.width, box.height)
      const cursor = hasFocus || pinned ? pinned : hovered
      const scene = { layout, top, ...box, chosen: broughtOut, colours, found, cursor }
      if (!context || !palette.current) return
      const pixels = `${context.canvas.width} ${context.canvas.height}` // another size empties the canvas
      const before = painted.current
      const isKept = before?.palette === palette.current && before.pixels === pixels
      paint(context, scene, palette.current, isKept ? before.scene : null)
      painted.current = { scene, palette: palette.current, pixels }
    })
    return () => cancelAnimationFrame(frame)
  }, [layout, top, box, broughtOut, colours, found, hovered, pinned, hasFocus, theme])

  const under = (event: PointerEvent) => {
    const edge = event.currentTarget.getBoundingClientRect()
    return positionAt(layout, event.clientX - edge.left, event.clientY - edge.top + top)
  }

  const onKeyDown = (event: KeyboardEvent) => {
    const direction = KEYS[event.key]
    if (direction) {
      event.preventDefault()
      const position = nextPosition(layout, pinned, direction)
      setPinned(position)
      scrollTo(windowRef.current, findPosition(layout, position)?.box)
    } else if (event.key === 'Escape' && pinned) {
      event.stopPropagation()
      setPinned(null)
    } else if (event.key === 'Enter') {
      const tenant = findPosition(layout, pinned)?.gpu?.tenants[0]
      if (tenant) onPick(tenant.workload)
    }
  }

  return (
    <div className="map-frame">
      <div className="map-window" ref={windowRef} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <div className="map-ground" style={{ height: Math.ceil(layout.height) + 2 }}>
          <canvas
            ref={canvasRef}
            tabIndex={0}
            role="application"
            aria-label={`Map of ${nodes.length} nodes. Use the arrow keys to move between GPUs and Enter to open the workload on one.`}
            aria-describedby="map-spot"
            style={{ width: box.width, height: box.height }}
            onKeyDown={onKeyDown}
            onFocus={(event) => setFocus(event.currentTarget.matches(':focus-visible'))}
            onBlur={() => setFocus(false)}
            onPointerMove={(event) => event.pointerType === 'mouse' && setHovered(keep(hovered, under(event)))}
            onPointerLeave={() => setHovered(null)}
            onClick={(event) => setPinned(toggled(pinned, under(event as unknown as PointerEvent)))}
          />
        </div>
      </div>
      {shown && (
        <DeviceCard
          found={shown}
          isPinned={pinned !== null}
          place={{ width: box.width, top }}
          onPick={onPick}
          onPickNode={onPickNode}
          onClose={() => setPinned(null)}
        />
      )}
      <p id="map-spot" className="unseen" aria-live="polite">
        {pinned && shown ? deviceSentence(shown) : ''}
      </p>
    </div>
  )
}

/** Laid out again only when nodes come, go or change their devices. */
function useLayout(nodes: readonly NodeView[], width: number, zoom: number): Layout {
  const last = useRef<{ nodes: readonly NodeView[]; width: number; zoom: number; layout: Layout } | null>(null)
  return useMemo(() => {
    const before = last.current
    const kept = before?.width === width && before.zoom === zoom ? withNodes(before.layout, before.nodes, nodes) : null
    const layout = kept ?? layOut(nodes, width, NICE_HEIGHT, zoom)
    last.current = { nodes, width, zoom, layout }
    return layout
  }, [nodes, width, zoom])
}

/** The names of the nodes that a search means, the same set while they are the same; null while nothing is searched for. */
function useFound(nodes: readonly NodeView[], search: string): ReadonlySet<string> | null {
  const last = useRef<ReadonlySet<string> | null>(null)
  return useMemo(() => {
    const names = search.trim() ? new Set(nodes.filter((node) => matches(node, search)).map((node) => node.name)) : null
    const before = last.current
    const isSame = names && before && names.size === before.size && [...names].every((name) => before.has(name))
    return isSame ? before : (last.current = names)
  }, [nodes, search])
}

const hosts = (node: NodeView, workload: string) =>
  node.gpus.some((gpu) => gpu.tenants.some((tenant) => tenant.workload === workload))

function tileOf(layout: Layout, workload: string): Box | undefined {
  for (const block of layout.blocks) {
    const tile = block.tiles.find((candidate) => hosts(candidate.node, workload))
    if (tile) return tile
  }
  return undefined
}

const isSame = (a: MapPosition | null, b: MapPosition | null) => a?.node === b?.node && a?.gpu === b?.gpu
const keep = (before: MapPosition | null, now: MapPosition | null) => (isSame(before, now) ? before : now)
const toggled = (before: MapPosition | null, now: MapPosition | null) => (isSame(before, now) ? null : now)

function scaled(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1
  const [pixelsX, pixelsY] = [Math.round(width * ratio), Math.round(height * ratio)]
  if (canvas.width !== pixelsX || canvas.height !== pixelsY) [canvas.width, canvas.height] = [pixelsX, pixelsY]
  const context = canvas.getContext('2d')
  context?.setTransform(ratio, 0, 0, ratio, 0, 0)
  return context
}

function scrollTo(frame: HTMLElement | null, box: Box | undefined): void {
  if (!frame || !box) return
  const isInView = box.y >= frame.scrollTop && box.y + box.height <= frame.scrollTop + frame.clientHeight
  if (!isInView) frame.scrollTop = box.y - frame.clientHeight / 3
}
