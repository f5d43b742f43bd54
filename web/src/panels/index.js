// Kinds of panels and what draws them. A new kind needs one line here and one small component, which is given
// {panel, hit, hits, choose}; a kind that nobody knows is shown as a plain table of its data.
import { Beam } from "./Beam.jsx";
import { Matches } from "./Matches.jsx";
import { Plain } from "./Plain.jsx";

const PANELS = {
  beam: { title: () => "How its docid was written", Component: Beam },
  matches: { title: () => "Which tokens fit", Component: Matches },
};

export const panelOf = (kind) => (Object.hasOwn(PANELS, kind) ? PANELS[kind] : { title: (panel) => `More: ${panel.kind}`, Component: Plain });
