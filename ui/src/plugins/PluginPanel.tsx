// The plugins: where each comes from, whether it is confined, what it costs, and when it last failed.

import { useState } from 'react'
import type { Page, PluginView } from '../api/views'
import { usePolled } from '../live/hooks'
import { ErrorMessage, Panel, Skeleton } from '../page/Panel'
import { confinement, cost, lastFault, split, trouble } from './words'

const EVERY_MS = 5000

export function PluginPanel() {
  const { value, problem } = usePolled<Page<PluginView>>('/plugins', EVERY_MS)
  const [showsOwn, setShowsOwn] = useState(false)
  const { others, own } = split(value?.items ?? [])
  const shown = showsOwn ? [...others, ...own] : others
  return (
    <Panel
      title="Plugins"
      problem={problem}
      className="plugins"
      aside={
        value && (
          <button type="button" aria-expanded={showsOwn} onClick={() => setShowsOwn(!showsOwn)}>
            {showsOwn ? `Hide the ${own.length} of Kaiwo` : `Show the ${own.length} of Kaiwo`}
          </button>
        )
      }
    >
      {!value && !problem && <Skeleton rows={2} />}
      {value && !shown.length && <p className="muted">Kaiwo runs without plugins of others. Start it with --plugins FILE to allow some.</p>}
      {shown.length > 0 && <PluginTable plugins={shown} />}
      {shown.map((plugin) => trouble(plugin) && <ErrorMessage key={`${plugin.run} ${plugin.name}`}>{trouble(plugin)}</ErrorMessage>)}
    </Panel>
  )
}

function PluginTable({ plugins }: { plugins: readonly PluginView[] }) {
  return (
    <div className="table-scroll">
      <table className="plain-table plugin-table">
        <thead>
          <tr>
            {['Plugin', 'State', 'Kinds', 'Runs', 'Cost', 'Last failure', 'From'].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {plugins.map((plugin) => (
            <tr key={`${plugin.run} ${plugin.name}`} title={plugin.description}>
              <th scope="row">
                {plugin.name} <span className="muted">{plugin.version}</span>
              </th>
              <td>
                <span className={`plugin-state ${plugin.state}`} title={plugin.detail}>{plugin.state}</span>
              </td>
              <td>{plugin.kinds.join(', ')}</td>
              <td>{confinement(plugin)}</td>
              <td>{cost(plugin)}</td>
              <td title={plugin.last_fault}>{lastFault(plugin, Date.now() / 1000)}</td>
              <td title={plugin.sha256 && `sha256 ${plugin.sha256}`}>
                {plugin.source}
                {plugin.sha256 && <code> {plugin.sha256.slice(0, 12)}</code>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
