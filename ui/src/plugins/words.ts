// What the table of plugins says, in words.

import type { PluginView } from '../api/views'
import { span } from '../words/times'

/** Those of others and those that were switched on, then the rest of Kaiwo's own. */
export function split(plugins: readonly PluginView[]): { others: PluginView[]; own: PluginView[] } {
  const isOther = (plugin: PluginView) => plugin.run !== 'built-in' || plugin.sha256 !== '' || plugin.calls > 0 || plugin.faults > 0
  return { others: plugins.filter(isOther), own: plugins.filter((plugin) => !isOther(plugin)) }
}

/** `confined (full)`: how it runs, and how well the kernel confines it. */
export function confinement(plugin: PluginView): string {
  return plugin.grade ? `${plugin.run} (${plugin.grade})` : plugin.run
}

/** `12 calls, 140 µs each`. */
export function cost(plugin: PluginView): string {
  if (!plugin.calls) return '–'
  return `${plugin.calls.toLocaleString('en')} ${plugin.calls === 1 ? 'call' : 'calls'}, ${plugin.mean_us.toLocaleString('en')} µs each`
}

export function lastFault(plugin: PluginView, now_s: number): string {
  return plugin.last_fault_s ? `${span(now_s - plugin.last_fault_s)} ago` : 'never'
}

/** Why a plugin that an administrator allowed takes no part; empty: it does, or nobody wants it to. */
export function trouble(plugin: PluginView): string {
  if (plugin.state === 'set-aside') return `${plugin.name} was set aside: ${plugin.detail}`
  return plugin.state === 'refused' ? `${plugin.name} is not used: ${plugin.detail}` : ''
}
