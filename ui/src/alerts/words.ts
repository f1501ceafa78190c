// The words of alerts.

import type { AlertRuleView, AlertView } from '../api/views'
import { count } from '../words/amounts'

/** For how long people may silence an alert with one click, in seconds. */
export const SILENCES = { '1 h': 3600, '8 h': 8 * 3600, '7 d': 7 * 86_400 } as const

const MARKS: Record<AlertView['severity'], string> = { critical: '▲ critical', warning: '◆ warning', info: '● info' }

/** A shape and a word: nothing by colour alone. */
export const severityMark = (alert: AlertView) => MARKS[alert.severity]

export function ruleState({ firing, pending }: AlertRuleView): string {
  const words = [firing && `${count(firing)} firing`, pending && `${count(pending)} pending`].filter(Boolean)
  return words.join(', ') || 'quiet'
}
