// The earlier attempts of a workload: where each ran, on what, how long, and how it ended or who stopped it.

import type { PastAttemptView } from '../api/views'
import { useNow } from '../live/clock'
import { span } from '../words/times'
import { nodeWords } from '../words/work'

const SHOWN = 16

/** `node-1: gpu-0, gpu-1`; of many only the first ones. */
function deviceWords(devices: readonly string[]): string {
  const byNode = new Map<string, string[]>()
  for (const device of devices.slice(0, SHOWN)) {
    const [node = '', id = ''] = device.split('/')
    byNode.set(node, [...(byNode.get(node) ?? []), id])
  }
  const words = [...byNode].map(([node, ids]) => `${node}: ${ids.join(', ')}`)
  return words.join('; ') + (devices.length > SHOWN ? ` and ${devices.length - SHOWN} more` : '')
}

export function Attempts({ attempts }: { attempts: readonly PastAttemptView[] }) {
  const now_s = useNow()
  const ended = attempts.filter((attempt) => attempt.ended_s)
  if (!ended.length) return null
  return (
    <section aria-labelledby="attempts-title">
      <h3 id="attempts-title">Attempts</h3>
      <ul className="attempts">
        {ended.toReversed().map((attempt) => (
          <li key={attempt.attempt}>
            <p>
              Attempt {attempt.attempt}: {attempt.message || `exit code ${attempt.exit_code}`}
            </p>
            <p className="muted">
              ran {span(attempt.ended_s - attempt.started_s)}
              {attempt.nodes.length > 0 && ` on ${nodeWords(attempt.nodes)}`}, ended {span(now_s - attempt.ended_s)} ago
            </p>
            {attempt.devices.length > 0 && <p className="devices">{deviceWords(attempt.devices)}</p>}
          </li>
        ))}
      </ul>
    </section>
  )
}
