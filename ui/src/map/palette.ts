// The page's colours, as a canvas needs them: resolved for the theme that is shown.

import { MOST_NAMES } from './colouring'
import type { Palette } from './paint'

const NAMES: Record<Exclude<keyof Palette, 'font' | 'names'>, string> = {
  surface: '--surface',
  tile: '--tile',
  line: '--line',
  track: '--track',
  text: '--text',
  muted: '--muted',
  accent: '--accent',
  coming: '--coming',
  warn: '--warn',
  danger: '--danger',
  hatch: '--hatch',
}

export function readPalette(element: HTMLElement): Palette {
  const probe = element.appendChild(document.createElement('span'))
  const resolve = (name: string) => {
    probe.style.color = `var(${name})`
    return getComputedStyle(probe).color
  }
  const colours = Object.fromEntries(Object.entries(NAMES).map(([field, name]) => [field, resolve(name)]))
  const font = getComputedStyle(element).fontFamily
  const names = Array.from({ length: MOST_NAMES + 1 }, (_, place) => resolve(`--name-${place}`))
  probe.remove()
  return { ...(colours as Omit<Palette, 'font' | 'names'>), names, font }
}
