// The map with its heading, what its colours mean, and what it says while there is nothing to draw.

import { useDeferredValue, useMemo, useRef, useState } from 'react'
import type { FragmentsView, GpuUseView, NodeView, Page, ReservationView } from '../api/views'
import { usePolled } from '../live/hooks'
import { Panel, Skeleton } from '../page/Panel'
import { count, counted } from '../words/amounts'
import { ClusterMap } from './ClusterMap'
import { COLOUR_BY, type ColourBy, type Colouring, MOST_NAMES, colouring } from './colouring'

const RESERVATIONS_AGAIN_MS = 10_000
const FRAGMENTS_AGAIN_MS = 15_000
const USE_AGAIN_MS = 5_000
const MOST_ZOOM = 3

interface Props {
  nodes: readonly NodeView[] | null
  total: number
  problem: string
  chosen: string
  onPick: (workload: string) => void
  onPickNode: (node: string) => void
}

export function MapPanel({ nodes, total, problem, chosen, onPick, onPickNode }: Props) {
  const [by, setBy] = useState<ColourBy>('allocation')
  const [search, setSearch] = useState('')
  const [zoom, setZoom] = useState(0)
  const known = useKnown(by)
  const colours = useColours(by, nodes, known)
  const shownSearch = useDeferredValue(search)
  const amount = nodes && nodes.length < total ? `${count(nodes.length)} of ${counted(total, 'node')}` : counted(total, 'node')
  return (
    <Panel
      title="Cluster"
      className="map"
      aside={nodes ? <Controls {...{ amount, search, setSearch, zoom, setZoom }} /> : ''}
      problem={problem || known.problem}
    >
      {!nodes ? (
        <Skeleton rows={3} tall />
      ) : nodes.length ? (
        <>
          <ClusterMap {...{ nodes, chosen, colours, zoom, onPick, onPickNode }} search={shownSearch} />
          <Legend colours={colours} />
          <ColourButtons by={by} onChoose={setBy} />
        </>
      ) : (
        <p className="teach">This cluster has no nodes yet. Work waits until one joins.</p>
      )}
    </Panel>
  )
}

/** The same object while the same names have the same colours, so that the map need not be drawn again. */
function useColours(by: ColourBy, nodes: readonly NodeView[] | null, known: ReturnType<typeof useKnown>): Colouring {
  const last = useRef<{ known: object; colours: Colouring } | null>(null)
  return useMemo(() => {
    const colours = colouring(by, nodes ?? [], known)
    const before = last.current
    const isSame =
      before?.known === known &&
      before.colours.by === by &&
      before.colours.hasOthers === colours.hasOthers &&
      before.colours.names.join('\n') === colours.names.join('\n')
    if (isSame) return before.colours
    last.current = { known, colours }
    return colours
  }, [by, nodes, known])
}

/** What some colours need to know; nothing is asked for while they are not shown. */
function useKnown(by: ColourBy) {
  const reserved = usePolled<Page<ReservationView>>(by === 'reserved' ? '/reservations' : '', RESERVATIONS_AGAIN_MS)
  const used = usePolled<GpuUseView>(by === 'use' ? '/gpus/use' : '', USE_AGAIN_MS)
  const stranded = usePolled<FragmentsView>(by === 'stranded' ? '/gpus/fragments' : '', FRAGMENTS_AGAIN_MS)
  return useMemo(
    () => ({
      reservations: reserved.value?.items ?? [],
      fragments: stranded.value?.nodes ?? [],
      use: used.value?.nodes ?? {},
      problem: reserved.problem || stranded.problem || used.problem,
    }),
    [reserved.value, reserved.problem, stranded.value, stranded.problem, used.value, used.problem],
  )
}

interface ControlProps {
  amount: string
  search: string
  setSearch: (search: string) => void
  zoom: number
  setZoom: (zoom: number) => void
}

function Controls({ amount, search, setSearch, zoom, setZoom }: ControlProps) {
  return (
    <div className="map-controls">
      <span>{amount}</span>
      <input
        aria-label="Find on the map"
        placeholder="Find node, label, user …"
        value={search}
        onChange={(event) => setSearch(event.target.value)}
      />
      <span className="zoom" role="group" aria-label="Zoom">
        <button type="button" aria-label="Zoom out" disabled={zoom <= -MOST_ZOOM} onClick={() => setZoom(zoom - 1)}>
          −
        </button>
        <button type="button" aria-label="Zoom in" disabled={zoom >= MOST_ZOOM} onClick={() => setZoom(zoom + 1)}>
          +
        </button>
      </span>
    </div>
  )
}

function ColourButtons({ by, onChoose }: { by: ColourBy; onChoose: (by: ColourBy) => void }) {
  return (
    <div className="colour-buttons" role="group" aria-label="What the colours of the map show">
      <span className="muted">Colours show</span>
      {(Object.keys(COLOUR_BY) as ColourBy[]).map((each) => (
        <button key={each} type="button" aria-pressed={each === by} onClick={() => onChoose(each)}>
          {COLOUR_BY[each]}
        </button>
      ))}
    </div>
  )
}

const STATES: [string, string][] = [
  ['free', 'free'],
  ['shared', 'shared'],
  ['full', 'full'],
  ['starting', 'starting'],
]
const TROUBLE: [string, string][] = [
  ['unhealthy', 'unhealthy'],
  ['out', 'cordoned or not ready'],
]
const STRANDED: [string, string][] = [
  ['free', 'free'],
  ['allocated', 'allocated'],
  ['stranded', 'stranded: no kind of request that was seen can use it'],
]

function Legend({ colours }: { colours: Colouring }) {
  return (
    <ul className="legend" aria-label="Legend of the map">
      {legendOf(colours).map(([kind, words]) => (
        <li key={kind}>
          <span className={`swatch ${kind}`} aria-hidden="true" />
          {words}
        </li>
      ))}
    </ul>
  )
}

function legendOf(colours: Colouring): [string, string][] {
  if (colours.by === 'allocation') return [...STATES, ...TROUBLE]
  if (colours.by === 'stranded') return [...STRANDED, ...TROUBLE]
  const names = colours.names.map((name, place): [string, string] => [`name-${place}`, name])
  if (colours.hasOthers) names.push([`name-${MOST_NAMES}`, 'others'])
  if (colours.by === 'reserved') names.push(['free', names.length ? 'not reserved' : 'nothing is reserved'])
  else if (colours.tenantName) names.push(['free', 'free'])
  return colours.by === 'health' ? names : [...names, ...TROUBLE]
}
