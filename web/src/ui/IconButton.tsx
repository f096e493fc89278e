import type { ButtonHTMLAttributes, ReactNode } from "react";
import { classes } from "./format.ts";

interface Props extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "aria-label" | "title"> {
  readonly label: string;
  readonly children: ReactNode;
}

/** A button with a picture and a name that everyone can find out. */
export function IconButton({ label, children, className, ...rest }: Props) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={classes("rounded-lg p-2 text-muted hover:bg-sunken hover:text-ink disabled:opacity-40", className)}
      {...rest}
    >
      {children}
    </button>
  );
}
