/** The list of skills below a slash: what is in it, which one is marked, and what keys do to it. */

import { useEffect, useState, type KeyboardEvent } from "react";
import { listSkills } from "../api/skills.ts";
import type { Skill } from "../api/types.ts";
import { skillChoices, slashWord } from "./skillChoices.ts";

export interface SkillChoices {
  readonly list: readonly Skill[];
  /** Index of the marked skill. */
  readonly marked: number;
  readonly choose: (skill: Skill) => void;
  /** Whether the key was for the list. */
  readonly take: (event: KeyboardEvent) => boolean;
}

export function useSkillChoices(draft: string, setDraft: (text: string) => void): SkillChoices {
  const [skills, setSkills] = useState<readonly Skill[]>([]);
  const [at, setAt] = useState(0);
  const [closedFor, setClosedFor] = useState<string | null>(null);
  const word = slashWord(draft);
  const isOpen = word !== null;

  // Asked for with each new slash: skills come and go while the page is open.
  useEffect(() => {
    if (isOpen) listSkills().then(setSkills, () => undefined);
  }, [isOpen]);
  useEffect(() => setAt(0), [word]);

  const list = word === null || closedFor === draft ? [] : skillChoices(word, skills);
  const marked = Math.min(at, list.length - 1);
  const choose = (skill: Skill) => setDraft(`/${skill.name} `);

  function take(event: KeyboardEvent): boolean {
    const chosen = list[marked];
    if (!chosen) return false;
    if (event.key === "ArrowDown") setAt((marked + 1) % list.length);
    else if (event.key === "ArrowUp") setAt((marked + list.length - 1) % list.length);
    else if (event.key === "Escape") setClosedFor(draft);
    else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey)) choose(chosen);
    else return false;
    event.preventDefault();
    return true;
  }

  return { list, marked, choose, take };
}
