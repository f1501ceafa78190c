// The map with its heading, its legend, and what it says while there is nothing to draw.

import type { NodeView } from '../api/views'
import { Panel, Skeleton } from '../page/Panel'
import { count, counted } from '../words/amounts'
import { ClusterMap } from './ClusterMap'

interface Props {
  nodes: readonly NodeView[] | null
  total: number
  problem: string
  chosen: string
  onPick: (workload: string) => void
}

export function MapPanel({ nodes, total, problem, chosen, onPick }: Props) {
  const aside = nodes && nodes.length < total ? `${count(nodes.length)} of ${counted(total, 'node')}` : counted(total, 'node')
  return (
    <Panel title="Cluster" className="map" aside={nodes ? aside : ''} problem={problem}>
      {!nodes ? (
        <Skeleton rows={3} tall />
      ) : nodes.length ? (
        <>
          <ClusterMap nodes={nodes} chosen={chosen} onPick={onPick} />
          <Legend />
        </>
      ) : (
        <p className="teach">This cluster has no nodes yet. Work waits until one joins.</p>
      )}
    </Panel>
  )
}

const KINDS = ['free', 'shared', 'full', 'starting', 'unhealthy', 'out']
const WORDS: Record<string, string> = { out: 'cordoned or not ready' }

function Legend() {
  return (
    <ul className="legend" aria-label="Legend of the map">
      {KINDS.map((kind) => (
        <li key={kind}>
          <span className={`swatch ${kind}`} aria-hidden="true" />
          {WORDS[kind] ?? kind}
        </li>
      ))}
    </ul>
  )
}
