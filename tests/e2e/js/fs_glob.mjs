// Lets npm's `skills` start on Node.js 20, which lacks the `glob` that it imports from `fs/promises`.
// It calls `glob` only for a few kinds of repository, none of them in our tests.
import { register } from 'node:module'

const module = `
export * from 'node:fs/promises'
import * as all from 'node:fs/promises'
export const glob = all.glob ?? (() => { throw new Error('glob needs Node.js 22') })
`
const hooks = `
export async function resolve(name, context, next) {
  if (name === 'fs/promises' && !context.parentURL?.startsWith('data:'))
    return { url: ${JSON.stringify(`data:text/javascript,${encodeURIComponent(module)}`)}, shortCircuit: true }
  return next(name, context)
}
`
register(`data:text/javascript,${encodeURIComponent(hooks)}`)
