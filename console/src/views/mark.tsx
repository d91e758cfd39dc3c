/** The sign of mewstream. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M6 12h9M19 12h7M6 20h4M14 20h12" />
    </svg>
  );
}
