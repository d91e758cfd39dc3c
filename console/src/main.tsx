import { render } from "preact";

import { applyTheme, theme } from "./session/theme.js";
import { App } from "./views/app.js";

applyTheme(theme());
const root = document.getElementById("app");
if (root) render(<App />, root);
