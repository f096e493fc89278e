import type { LucideIcon } from "lucide-react";
import { classes } from "./format.ts";

interface Props {
  readonly icon: LucideIcon;
  readonly label: string;
  readonly hint: string;
  readonly isOn: boolean;
  readonly isDisabled?: boolean;
  readonly onToggle: (isOn: boolean) => void;
}

/** One way of working, on or off. */
export function ModeToggle({ icon: Icon, label, hint, isOn, isDisabled = false, onToggle }: Props) {
  return (
    <button
      type="button"
      aria-pressed={isOn}
      aria-label={label}
      title={hint}
      disabled={isDisabled}
      className={classes(
        "flex shrink-0 items-center gap-1.5 rounded-full border px-2.5 py-1 text-xs transition-colors disabled:opacity-40",
        isOn ? "border-accent/50 bg-accent-soft text-accent" : "border-line text-muted hover:text-ink",
      )}
      onClick={() => onToggle(!isOn)}
    >
      <Icon aria-hidden size={14} />
      <span className="hidden whitespace-nowrap @lg:inline">{label}</span>
    </button>
  );
}
