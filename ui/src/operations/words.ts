// Words about failures and reservations.

import type { FailureView, ReservationView } from '../api/views'
import { span } from '../words/times'
import { shortName } from '../words/work'

export function failedThing(failure: FailureView): string {
  if (failure.gpu) return `${failure.gpu} of ${failure.name}`
  return failure.domain ? `${failure.name} (${failure.domain})` : failure.name
}

/** `queue research`, `user ada`; a pool is for everybody whose work names it. */
export function ownerWords(reservation: ReservationView): string {
  if (!reservation.owner) return 'work that names it'
  return `${reservation.owner_kind} ${shortName(reservation.owner)}`
}

export function timesOf({ phase, start_s, end_s }: Pick<ReservationView, 'phase' | 'start_s' | 'end_s'>, now_s: number): string {
  if (phase === 'expired') return `ended ${span(now_s - end_s)} ago`
  const length = end_s ? `for ${span(end_s - Math.max(start_s, now_s))}` : 'without an end'
  return phase === 'active' ? `now, ${length}` : `in ${span(start_s - now_s)}, ${length}`
}
