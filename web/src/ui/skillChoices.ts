/** Which skills a message may mean whose first word is being written. */

import type { Skill } from "../api/types.ts";

/** Words after a slash that are no skills. */
const RESERVED = new Set(["bootstrap", "goal", "help", "memory", "models", "new", "status"]);
const MOST = 8;

/** Return the word after the slash while it is being written, else null. */
export function slashWord(draft: string): string | null {
  return /^\/([^\s/]*)$/.exec(draft)?.[1] ?? null;
}

/** Return the skills for a word: those that begin with it, then those that contain it; none when it is complete. */
export function skillChoices(word: string, skills: readonly Skill[]): readonly Skill[] {
  const wanted = word.toLowerCase();
  const usable = skills.filter((skill) => skill.enabled && !RESERVED.has(skill.name));
  if (usable.some((skill) => skill.name === wanted)) return [];
  const first = usable.filter((skill) => skill.name.startsWith(wanted));
  const then = usable.filter((skill) => !skill.name.startsWith(wanted) && skill.name.includes(wanted));
  return [...first, ...then].slice(0, MOST);
}
