/** The sign of the house. */
export function DeerMark({ size = 24 }: { readonly size?: number }) {
  return (
    <svg
      aria-hidden
      width={size}
      height={size}
      viewBox="0 0 32 32"
      fill="none"
      stroke="currentColor"
      strokeWidth="2"
      strokeLinecap="round"
      strokeLinejoin="round"
      className="shrink-0 text-accent"
    >
      <path d="M9 3c-1 4 0 7 4 9M6 6c1 2 3 3 5 3M23 3c1 4 0 7-4 9M26 6c-1 2-3 3-5 3" />
      <path d="M11 12h10l-1 9c0 4-2 7-4 7s-4-3-4-7z" fill="currentColor" fillOpacity=".15" />
      <path d="M14 17v.01M18 17v.01" />
    </svg>
  );
}
