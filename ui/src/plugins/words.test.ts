import { expect, test } from 'vitest'
import type { PluginView } from '../api/views'
import { confinement, cost, lastFault, split, trouble } from './words'

const PLUGIN: PluginView = {
  name: 'a', version: '1', state: 'active', kinds: ['score'], run: 'confined', source: '/opt/a', sha256: 'ab', grade: 'full', detail: '',
  calls: 0, mean_us: 0, longest_us: 0, faults: 0, last_fault: '', last_fault_s: 0, dependencies: [], description: '',
}

test('the plugins of others come first, and those of Kaiwo that take no calls stay folded', () => {
  const own = { ...PLUGIN, name: 'pack', run: 'built-in', sha256: '', grade: '' }
  const rate = { ...own, name: 'start-rate', calls: 3 }
  expect(split([PLUGIN, rate, own])).toEqual({ others: [PLUGIN, rate], own: [own] })
})

test('a plugin says how it runs, what it costs and when it failed', () => {
  expect(confinement(PLUGIN)).toBe('confined (full)')
  expect(confinement({ ...PLUGIN, run: 'trusted', grade: '' })).toBe('trusted')
  expect(cost(PLUGIN)).toBe('–')
  expect(cost({ ...PLUGIN, calls: 1200, mean_us: 140 })).toBe('1,200 calls, 140 µs each')
  expect(lastFault(PLUGIN, 1000)).toBe('never')
  expect(lastFault({ ...PLUGIN, last_fault_s: 160 }, 1000)).toBe('14 min ago')
})

test('a plugin that takes no part says why, unless nobody asked for it', () => {
  expect(trouble(PLUGIN)).toBe('')
  expect(trouble({ ...PLUGIN, state: 'set-aside', detail: 'it hung' })).toBe('a was set aside: it hung')
  expect(trouble({ ...PLUGIN, state: 'refused', detail: 'its files changed' })).toBe('a is not used: its files changed')
  expect(trouble({ ...PLUGIN, state: 'not-allowed', detail: 'allow it' })).toBe('')
})
