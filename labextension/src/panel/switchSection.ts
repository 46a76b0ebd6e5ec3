import type { TranslationBundle } from '@jupyterlab/translation';

import { element, Text } from '../ui/dom';
import type { Kernel } from '../kernel/kernel';
import type { Kernels } from '../kernel/kernels';
import type { Folds } from './folds';
import { SwitchRow } from './switchRow';
import { switchLines, switchReason, switchSummary } from './switchWords';
import type { Switch } from '../wire';

/** torch's switches of the notebook in front, folded until somebody asks for them. */
export class SwitchSection {
  readonly node: HTMLDetailsElement;
  private readonly summary = new Text('fold-state');
  private readonly list = element('div', 'switches');
  private readonly said = new Text('switch-said', 'div');
  private readonly rows = new Map<string, SwitchRow>();
  /** What was wished of each, until its answer comes: else what was just clicked would jump back. */
  private readonly wished = new Map<string, string>();
  private shown: Kernel | null = null;
  private latest: string | null = null;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly kernels: Kernels,
    folds: Folds
  ) {
    this.node = element(
      'details',
      'fold jp-gpuwidget-switches-fold',
      element(
        'summary',
        'fold-head',
        element('span', 'fold-title', trans.__('Torch switches')),
        this.summary.node
      ),
      element('div', 'fold-body', this.list, this.said.node)
    );
    folds.hold(this.node, 'switches', () => {
      this.update();
    });
    this.list.setAttribute('role', 'group');
    this.list.setAttribute('aria-label', trans.__('Torch switches'));
    this.said.node.setAttribute('aria-live', 'polite');
  }

  /** Show what is known of the kernel. */
  update(): void {
    const { view, state } = this.kernels;
    if (view.kernel !== this.shown) {
      this.shown = view.kernel;
      this.latest = null;
      this.wished.clear();
    }
    this.summary.set(switchSummary(this.trans, view));
    if (!this.node.open) {
      return;
    }
    const reason = switchReason(this.trans, view);
    if (state === null) {
      for (const row of this.rows.values()) {
        row.forget(reason);
      }
    } else {
      this.arrange(state.switches);
      for (const known of state.switches) {
        this.rows.get(keyOf(known))?.update(known, { wished: this.wished.get(known.name) ?? null, reason });
      }
    }
    const lines = switchLines(this.trans, view, this.latest);
    this.said.set(reason === '' ? lines : [reason, lines].filter(text => text !== '').join('\n'));
  }

  /** Another version in another kernel has other switches: a row that stayed would show that one's. */
  private arrange(switches: readonly Switch[]): void {
    if (switches.map(keyOf).join() === [...this.rows.keys()].join()) {
      return;
    }
    const before = new Map(this.rows);
    this.rows.clear();
    for (const known of switches) {
      const key = keyOf(known);
      this.rows.set(key, before.get(key) ?? new SwitchRow(this.trans, known, this.choose(known.name)));
    }
    this.list.replaceChildren(...[...this.rows.values()].map(({ node }) => node));
  }

  private choose(name: string): (value: string) => void {
    return value => {
      this.latest = name;
      this.wished.set(name, value);
      this.update();
      void this.kernels.setSwitch(name, value).finally(() => {
        if (this.wished.get(name) === value) {
          this.wished.delete(name);
        }
        this.update();
      });
    };
  }
}

function keyOf({ name, choices }: Switch): string {
  return [name, ...choices].join(' ');
}
