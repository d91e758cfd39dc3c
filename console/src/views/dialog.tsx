/** A dialog, which the browser keeps in front and closes by Escape. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { Button } from "./parts.js";
import { Icon } from "./icons.js";

export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (dialog.current && !dialog.current.open) dialog.current.showModal();
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-label={title} onClose={close}>
      <header>
        <h2>{title}</h2>
        <Button kind="quiet" label="Close" act={close}>
          <Icon name="close" />
        </Button>
      </header>
      {children}
    </dialog>
  );
}
