/** The skills that a message can begin with. */

import { call } from "./client.ts";
import type { Skill } from "./types.ts";

export async function listSkills(): Promise<readonly Skill[]> {
  const answer = await call<{ skills: readonly Skill[] }>("GET", "/api/skills");
  return answer.skills;
}
