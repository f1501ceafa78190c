// The top of the page: which cluster this is, whether the page is live, the cluster's clock, and the theme.

import { logOut } from '../api/session'
import type { ClusterView } from '../api/views'
import type { ConnectionState } from '../live/follow'
import { clock } from '../words/times'
import { Navigation } from './Navigation'
import type { PageState } from './address'
import { useTheme } from './theme'

interface Props {
  cluster: ClusterView | undefined
  connection: ConnectionState | null // null: not logged in
  now_s: number
  pageState?: PageState
}

export function Header({ cluster, connection, now_s, pageState }: Props) {
  return (
    <header className="top">
      <h1>
        <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
          <path className="mark-strong" d="M1 2h4.5v16H1z" />
          <path className="mark-faint" d="M7.75 2h4.5v5h-4.5z" />
          <path className="mark-strong" d="M7.75 9h4.5v9h-4.5z" />
          <path className="mark-half" d="M14.5 6H19v12h-4.5z" />
        </svg>
        Kaiwo
      </h1>
      {pageState && <Navigation pageState={pageState} />}
      <p className="cluster-words">{cluster && clusterWords(cluster)}</p>
      <div className="top-end">
        {now_s > 0 && (
          <time className="clock" title="The cluster's clock">
            {clock(now_s)}
          </time>
        )}
        {connection && <ConnectionMark connection={connection} />}
        {connection && (
          <button type="button" onClick={() => void logOut()}>
            Log out
          </button>
        )}
        <ThemeButton />
      </div>
    </header>
  )
}

export function clusterWords(cluster: ClusterView): string {
  const words = [cluster.kind]
  if (cluster.name && cluster.name !== cluster.kind) words.push(cluster.name)
  if (cluster.is_virtual) words.push('virtual nodes')
  if (cluster.speed !== 1) words.push(`${cluster.speed}× speed`)
  return words.join(' · ')
}

const CONNECTION_WORDS: Record<ConnectionState, string> = { connecting: 'connecting', live: 'live', reconnecting: 'reconnecting' }

function ConnectionMark({ connection }: { connection: ConnectionState }) {
  return (
    <p className={`line ${connection}`} role="status" aria-live="polite">
      <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
        {connection === 'live' ? (
          <circle cx="5" cy="5" r="4" fill="currentColor" />
        ) : (
          <circle cx="5" cy="5" r="3.4" fill="none" stroke="currentColor" strokeWidth="1.6" strokeDasharray="4 2.5" />
        )}
      </svg>
      {CONNECTION_WORDS[connection]}
    </p>
  )
}

function ThemeButton() {
  const [theme, toggle] = useTheme()
  const other = theme === 'dark' ? 'light' : 'dark'
  return (
    <button type="button" className="icon" onClick={toggle} aria-label={`Use the ${other} theme`} title={`Use the ${other} theme`}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" strokeWidth="1.5" />
        <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" />
      </svg>
    </button>
  )
}
