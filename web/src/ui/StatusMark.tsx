import { Ban, Check, CircleQuestionMark, Clock, LoaderCircle, X } from "lucide-react";

type Status = "running" | "waiting" | "done" | "completed" | "failed" | "stopped" | "cancelled" | "timed_out";

/** How something stands, in one sign (with a name for those who do not see it). */
export function StatusMark({ status, label }: { readonly status: Status; readonly label: string }) {
  return (
    <span role="img" aria-label={label} title={label} className="shrink-0">
      {sign(status)}
    </span>
  );
}

function sign(status: Status) {
  switch (status) {
    case "running":
      return <LoaderCircle size={15} className="animate-spin text-accent" />;
    case "waiting":
      return <CircleQuestionMark size={15} className="text-warn" />;
    case "done":
    case "completed":
      return <Check size={15} className="text-accent" />;
    case "failed":
      return <X size={15} className="text-bad" />;
    case "timed_out":
      return <Clock size={15} className="text-warn" />;
    case "stopped":
    case "cancelled":
      return <Ban size={15} className="text-muted" />;
  }
}
