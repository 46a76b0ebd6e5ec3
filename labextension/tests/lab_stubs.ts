/**
 * Replaces the parts of JupyterLab that need a browser, so that classes that import them can be tested in Node.
 * Import this file before them.
 */

import Module from 'node:module';

const STUBS: Readonly<Record<string, unknown>> = {
  '@jupyterlab/apputils': {},
  '@jupyterlab/rendermime': {
    // A widget that shows the HTML as text.
    htmlRendererFactory: {
      createRenderer: ({ mimeType }: { mimeType: string }) => ({
        node: { textContent: '' },
        renderModel(this: { node: { textContent: string } }, { data }: { data: Record<string, string> }) {
          this.node.textContent = data[mimeType] ?? '';
          return Promise.resolve();
        }
      })
    }
  },
  '@lumino/widgets': { Widget: Object }
};

const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown };
const load = loader._load.bind(Module);
loader._load = (name, ...rest) => STUBS[name] ?? load(name, ...rest);
