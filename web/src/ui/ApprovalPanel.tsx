import { useMemo, useState } from "react";
import type { Decision, Interrupt } from "../api/types.ts";
import { answersOf, questionsOf, type Answers } from "../run/approvals.ts";
import { ApprovalCard } from "./ApprovalCard.tsx";

interface Props {
  readonly waiting: readonly Interrupt[];
  readonly onAnswer: (answers: Answers) => void;
}

/** All calls that wait for the person; the answers go out together, when the last one is decided. */
export function ApprovalPanel({ waiting, onAnswer }: Props) {
  const questions = useMemo(() => questionsOf(waiting), [waiting]);
  const [decisions, setDecisions] = useState<ReadonlyMap<string, Decision>>(new Map());
  const decide = (key: string, decision: Decision) => {
    const next = new Map(decisions).set(key, decision);
    setDecisions(next);
    const answers = answersOf(waiting, next);
    if (answers !== null) onAnswer(answers);
  };
  return questions
    .filter((question) => !decisions.has(question.key))
    .map((question) => (
      <ApprovalCard key={question.key} action={question.action} request={question.request} onDecide={(decision) => decide(question.key, decision)} />
    ));
}
