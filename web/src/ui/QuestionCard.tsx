import { MessageCircleQuestion } from "lucide-react";
import { memo } from "react";
import type { HumanInputRequest, HumanInputResponse } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { Markdown } from "./Markdown.tsx";
import { QuestionChoices } from "./QuestionChoices.tsx";
import { QuestionForm } from "./QuestionForm.tsx";
import { QuestionText } from "./QuestionText.tsx";

export interface Reply {
  readonly text: string;
  readonly optionId?: string;
}

interface Props {
  readonly request: HumanInputRequest;
  readonly answer: HumanInputResponse | null;
  readonly isOpen: boolean;
  readonly onReply: (request: HumanInputRequest, reply: Reply) => void;
}

/** A question that the agent needs answered before it goes on. */
export const QuestionCard = memo(function QuestionCard({ request, answer, isOpen, onReply }: Props) {
  const words = useWords();
  const reply = (given: Reply) => onReply(request, given);
  return (
    <section aria-label={words.question} className="space-y-3 rounded-xl border border-accent/40 bg-panel p-4">
      <h2 className="flex items-center gap-2 text-xs text-accent">
        <MessageCircleQuestion aria-hidden size={16} />
        {words.question}
      </h2>
      {request.context && <div className="text-sm text-muted"><Markdown text={request.context} level={3} /></div>}
      <Markdown text={request.question} level={3} />
      {isOpen && request.input_mode === "choice_with_other" && <QuestionChoices options={request.options ?? []} onReply={reply} />}
      {isOpen && request.input_mode === "form" && <QuestionForm fields={request.fields ?? []} onReply={reply} />}
      {isOpen && request.input_mode === "free_text" && <QuestionText label={words.answer} onReply={reply} />}
      {answer && (
        <p className="text-sm whitespace-pre-wrap">
          <span className="text-muted">{words.answered}: </span>
          {answer.value}
        </p>
      )}
    </section>
  );
});
