/** The rules for style sheets: those of JupyterLab's template for extensions. */
export default {
  extends: 'stylelint-config-standard',
  rules: {
    'selector-class-pattern': '^([a-z][A-z\\d]*)(-[A-z\\d]+)*$',
    // Rules are in the order of the parts that they belong to. The more specific rule wins, wherever it is.
    'no-descending-specificity': null
  }
};
