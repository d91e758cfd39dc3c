/** Light or dark: as the system has it, until somebody chooses. */

export type Theme = "system" | "light" | "dark";

const KEY = "mewstream-theme";

export function theme(): Theme {
  try {
    const found = localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

export function setTheme(chosen: Theme): void {
  try {
    if (chosen === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
  } catch {
    // It holds for as long as the page is open.
  }
  applyTheme(chosen);
}

export function applyTheme(chosen: Theme): void {
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}
